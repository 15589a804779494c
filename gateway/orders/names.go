package orders

// kindNames are for people and for tools that print a journal.
var kindNames = map[Kind]string{
	DefineInstrument: "DEFINE_INSTRUMENT", DefineAccount: "DEFINE_ACCOUNT", DefineFirm: "DEFINE_FIRM",
	Submit: "SUBMIT", Replace: "REPLACE", Cancel: "CANCEL", MassCancel: "MASS_CANCEL",
	SetLimits: "SET_LIMITS", SetKillSwitch: "SET_KILL_SWITCH", CancelAllAfter: "CANCEL_ALL_AFTER", FireTimer: "FIRE_TIMER",
	Logon: "LOGON", Logout: "LOGOUT", ExpireSession: "EXPIRE_SESSION", EndDay: "END_DAY",
}

// String returns the kind's name.
func (k Kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return "UNKNOWN"
}

// MarshalText implements encoding.TextMarshaler.
func (s Symbol) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
