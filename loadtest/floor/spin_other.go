//go:build !linux

package floor

import "net"

// spin makes a connection spin, where its kind allows it.
func spin(conn net.Conn) net.Conn { return conn }

// CanSpin tells whether this system's connections can.
const CanSpin = false
