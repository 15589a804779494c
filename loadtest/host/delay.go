package host

import (
	"context"
	"time"

	"tailgate/transports"
)

// delayed puts a known time before the handling of every exchange, by asking the monotonic clock until it has passed: the core is busy with it, as it would be
// with a handler that does more, and no timer rounds it. The order path behind is the real one.
func delayed(by time.Duration) func(transports.Gateway) transports.Gateway {
	return func(gateway transports.Gateway) transports.Gateway { return delayedGateway{gateway, by} }
}

type delayedGateway struct {
	transports.Gateway
	by time.Duration
}

// Open implements transports.Gateway.
func (g delayedGateway) Open(ctx context.Context, peer transports.Peer) (transports.Session, error) {
	session, err := g.Gateway.Open(ctx, peer)
	if err != nil {
		return nil, err
	}
	d := delayedSession{session, g.by}
	if account, ok := session.(transports.AccountSession); ok {
		return delayedAccount{d, account}, nil
	}
	return d, nil
}

type delayedSession struct {
	transports.Session
	by time.Duration
}

// Handle implements transports.Session.
func (s delayedSession) Handle(ctx context.Context, x *transports.Exchange) error {
	for begun := time.Now(); time.Since(begun) < s.by; {
	}
	return s.Session.Handle(ctx, x)
}

// delayedAccount is the same for a session that tells whose it is.
type delayedAccount struct {
	delayedSession
	account transports.AccountSession
}

// Account implements transports.AccountSession.
func (s delayedAccount) Account() string { return s.account.Account() }
