package tcp

// ClientEngines are the I/O engines of clients on this system.
var ClientEngines = clientEngines
