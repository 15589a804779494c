package server

import (
	"fmt"
	"runtime/debug"
)

// Version is what the build recorded.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "tailgate (no build information)"
	}
	revision, modified := "unknown revision", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	return fmt.Sprintf("tailgate %s (%s%s, %s)", info.Main.Version, revision, modified, info.GoVersion)
}
