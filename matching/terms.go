package matching

// CheckTerms returns the reason for which no engine would take the command as a
// new order, whatever rests in it and whatever its options are, or ReasonNone. It
// looks at the command alone. Apply and Check make the same check.
func CheckTerms(cmd *Command) Reason { return checkTerms(cmd) }
