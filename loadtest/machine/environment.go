package machine

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Environment is what a reader has to know of machine and build. A field that could not be read is empty.
type Environment struct {
	Host              string            `json:"host"`
	OS                string            `json:"os"` // GOOS/GOARCH
	Kernel            string            `json:"kernel"`
	CPU               string            `json:"cpu"`
	OnlineCores       int               `json:"online_cores"`
	AllowedCores      []int             `json:"allowed_cores"`
	MemoryBytes       int64             `json:"memory_bytes"`
	Virtualized       bool              `json:"virtualized"`
	Hypervisor        string            `json:"hypervisor"` // vendor as the firmware says
	Governor          string            `json:"governor"`   // of the first core's frequency
	SMT               string            `json:"smt"`
	CongestionControl string            `json:"congestion_control"` // the system's default
	LoadAverage       string            `json:"load_average"`       // /proc/loadavg when the run started
	Sysctls           map[string]string `json:"sysctls"`
	GoVersion         string            `json:"go_version"`
	Version           string            `json:"version"`  // of this module, as the build recorded it
	Revision          string            `json:"revision"` // of the source, "+modified" where the tree was
	Libraries         map[string]string `json:"libraries"`
	GoEnvironment     map[string]string `json:"go_environment"` // GOGC, GOMEMLIMIT, GODEBUG where set
}

// libraries are those whose version changes what is measured.
var libraries = []string{
	"google.golang.org/grpc", "google.golang.org/protobuf", "golang.org/x/net", "connectrpc.com/connect", "github.com/valyala/fasthttp",
	"github.com/gofiber/fiber/v3", "github.com/labstack/echo/v5", "github.com/twitchtv/twirp", "github.com/HdrHistogram/hdrhistogram-go",
}

// ReadEnvironment reads it.
func ReadEnvironment() Environment {
	e := Environment{OS: runtime.GOOS + "/" + runtime.GOARCH, GoVersion: runtime.Version(), Libraries: map[string]string{}, GoEnvironment: map[string]string{}}
	e.Host, _ = os.Hostname() // empty where the system does not say
	if cores, err := Cores(); err == nil {
		for _, c := range cores {
			e.AllowedCores = append(e.AllowedCores, c.ID)
		}
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GODEBUG"} {
		if value, ok := os.LookupEnv(name); ok {
			e.GoEnvironment[name] = value
		}
	}
	e.readSystem()
	e.readBuild()
	return e
}

func (e *Environment) readBuild() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	e.Version = info.Main.Version
	modified := ""
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			e.Revision = setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				modified = "+modified"
			}
		}
	}
	e.Revision = strings.TrimSpace(e.Revision + modified)
	for _, module := range info.Deps {
		for _, name := range libraries {
			if module.Path == name {
				e.Libraries[name] = module.Version
			}
		}
	}
}
