package main

import (
	"errors"
	"fmt"
	"io"

	"tailgate/gateway/journal"
)

// journalCmd looks at a journal without running a gateway on it.
type journalCmd struct {
	Verify struct{} `cmd:"" help:"Read the whole journal and say what is in it; exit status 1 when it is damaged. Changes nothing."`
	Dump   struct {
		From uint64 `help:"First log sequence number (default: the first one there is)." placeholder:"LSN"`
		To   uint64 `help:"Last log sequence number (default: the last one)." placeholder:"LSN"`
	} `cmd:"" help:"Print the commands, one line of JSON each; also beside a running gateway. Changes nothing."`
	Cut struct {
		LSN uint64 `arg:"" name:"lsn" help:"First log sequence number to give up, as the damage report names it."`
	} `cmd:"" help:"Give up a record and all behind it, for good: what was acked there is lost. Copy the folder before."`
}

func verifyJournal(dir string, stdout, stderr io.Writer) int {
	report, err := journal.Verify(dir, nil, nil)
	if err != nil {
		fmt.Fprintf(stderr, "gateway: journal %s: %v\n", dir, err)
		if damage, ok := errors.AsType[*journal.DamageError](err); ok && !damage.Final {
			fmt.Fprintf(stderr, "'gateway journal cut --data %s %d' gives up that record and all behind it.\n", dir, damage.LSN)
		}
		return exitFailure
	}
	if report.Segments == 0 && len(report.Snapshots) == 0 {
		fmt.Fprintf(stderr, "gateway: journal %s: there is no journal in this folder (--data DIR)\n", dir)
		return exitFailure
	}
	fmt.Fprintf(stdout, "journal %s: %s\n", dir, report)
	return exitOK
}

func cutJournal(dir string, lsn uint64, stdout, stderr io.Writer) int {
	report, err := journal.Cut(dir, nil, lsn)
	if err != nil {
		fmt.Fprintf(stderr, "gateway: journal %s: %v\n", dir, err)
		return exitFailure
	}
	fmt.Fprintf(stdout, "journal %s: cut; now %s\n", dir, report)
	return exitOK
}
