// Package sockets reads what TCP itself knows of the connections of a cell: what was sent twice, and what held the sender up.
//
// On this machine it sees both ends, since the kernel keeps a socket for each; of a server elsewhere it sees the clients' end alone. It must never know who
// uses a connection, and it says why where it can tell nothing: a zero is a zero that was read.
package sockets
