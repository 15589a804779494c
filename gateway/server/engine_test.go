package server_test

import (
	"strings"
	"testing"

	"tailgate/gateway/server"
	"tailgate/transports/all"
)

// TestEngines: an engine that a transport does not have is refused by the name of its key, before anything is opened.
func TestEngines(t *testing.T) {
	for _, transport := range all.All() {
		for _, engine := range append([]string{""}, transport.Engines...) {
			if engine == "spin" {
				continue // it depends on the machine's cores too
			}
			c := server.DefaultConfig()
			c.Listeners[transport.Name] = server.Listener{Address: "127.0.0.1:0", Engine: engine}
			if err := server.Check(c); err != nil {
				t.Errorf("%s, engine %q: %v", transport.Name, engine, err)
			}
		}
		c := server.DefaultConfig()
		c.Listeners[transport.Name] = server.Listener{Address: "127.0.0.1:0", Engine: "steam"}
		if err := server.Check(c); err == nil || !strings.Contains(err.Error(), "listeners."+transport.Name+`.engine "steam"`) {
			t.Errorf("%s: %v", transport.Name, err)
		}
	}
	c := server.DefaultConfig()
	c.Admin.Engine = "net"
	if err := server.Check(c); err == nil || !strings.Contains(err.Error(), "admin.engine") {
		t.Errorf("admin: %v", err)
	}
}
