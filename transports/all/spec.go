package all

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tailgate/transports"
)

// Spec names a transport with its choices, as --transport takes it: "tcp", "tcp:none", "tcp:credit,net", "connect:grpcweb,json".
type Spec struct {
	Transport transports.Transport
	Flow      string // one of Transport.Flows, the default filled in; empty where the transport offers none
	FlowLimit int    // the N of "semaphore=N"; 0 for flows without one
	Engine    string // one of Transport.Engines, the default filled in; empty where the transport offers none
	Protocol  string // one of Transport.Protocols, the default filled in; empty where the transport offers none
	Encoding  string // one of Transport.Encodings, the default filled in
}

// Semaphore is the flow that needs a limit: "semaphore=N".
const Semaphore = "semaphore"

// Names returns the names of all transports.
func Names() []string {
	list := All()
	names := make([]string, len(list))
	for i, t := range list {
		names[i] = t.Name
	}
	return names
}

// Parse reads NAME or NAME:CHOICE[,CHOICE...]; each choice is a flow, an engine, a protocol or an encoding of that transport, in any order. The error
// names what is wrong and what is allowed.
func Parse(text string) (Spec, error) {
	name, choices, hasChoices := strings.Cut(text, ":")
	list := All()
	i := slices.IndexFunc(list, func(t transports.Transport) bool { return t.Name == name })
	if i < 0 {
		return Spec{}, fmt.Errorf("unknown transport %q: allowed are %s", name, strings.Join(Names(), ", "))
	}
	spec := Spec{Transport: list[i]}
	if hasChoices {
		for choice := range strings.SplitSeq(choices, ",") {
			if err := spec.choose(choice, text); err != nil {
				return Spec{}, err
			}
		}
	}
	setFirst(&spec.Flow, spec.Transport.Flows)
	setFirst(&spec.Engine, spec.Transport.Engines)
	setFirst(&spec.Protocol, spec.Transport.Protocols)
	setFirst(&spec.Encoding, spec.Transport.Encodings)
	return spec, nil
}

func (s *Spec) choose(choice, text string) error {
	base, limit, hasLimit := strings.Cut(choice, "=")
	var field *string
	switch {
	case slices.Contains(s.Transport.Flows, base):
		field = &s.Flow
	case slices.Contains(s.Transport.Engines, base):
		field = &s.Engine
	case slices.Contains(s.Transport.Protocols, base):
		field = &s.Protocol
	case slices.Contains(s.Transport.Encodings, base):
		field = &s.Encoding
	default:
		allowed := slices.Concat(s.Transport.Flows, s.Transport.Engines, s.Transport.Protocols, s.Transport.Encodings)
		return fmt.Errorf("transport %q: unknown choice %q: allowed for %s are %s", text, choice, s.Transport.Name, strings.Join(allowed, ", "))
	}
	if *field != "" {
		return fmt.Errorf("transport %q: both %q and %q are given, choose one", text, *field, base)
	}
	if hasLimit {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || base != Semaphore {
			return fmt.Errorf("transport %q: %q takes no such limit: only semaphore=N with N from 1", text, choice)
		}
		s.FlowLimit = n
	}
	if base == Semaphore && !hasLimit {
		return fmt.Errorf("transport %q: %q needs its limit, the most requests in flight over all clients: semaphore=50", text, choice)
	}
	*field = base
	return nil
}

func setFirst(field *string, choices []string) {
	if *field == "" && len(choices) > 0 {
		*field = choices[0]
	}
}

// String is the shortest text that Parse reads back to the same spec: choices that are the default are left out.
func (s Spec) String() string {
	var choices []string
	if len(s.Transport.Flows) > 0 && s.Flow != s.Transport.Flows[0] {
		flow := s.Flow
		if s.FlowLimit > 0 {
			flow += "=" + strconv.Itoa(s.FlowLimit)
		}
		choices = append(choices, flow)
	}
	if len(s.Transport.Engines) > 0 && s.Engine != s.Transport.Engines[0] {
		choices = append(choices, s.Engine)
	}
	if len(s.Transport.Protocols) > 0 && s.Protocol != s.Transport.Protocols[0] {
		choices = append(choices, s.Protocol)
	}
	if len(s.Transport.Encodings) > 0 && s.Encoding != s.Transport.Encodings[0] {
		choices = append(choices, s.Encoding)
	}
	if len(choices) == 0 {
		return s.Transport.Name
	}
	return s.Transport.Name + ":" + strings.Join(choices, ",")
}
