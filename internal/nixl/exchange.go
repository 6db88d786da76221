package nixl

import (
	"context"
	"fmt"
)

// MetadataHost is the agent as a server of package exchange sees it.
type MetadataHost interface {
	Self() Identity
	Metadata() []byte
	LoadRemote(blob []byte) (string, error)
	// InvalidateFrom forgets a peer that asks for it, if that run of it is loaded.
	InvalidateFrom(from Identity) error
}

// A MetadataExchanger is a Transport at whose listener agents give each other their
// metadata. Its Start gets a Host that is a MetadataHost, too.
type MetadataExchanger interface {
	Transport
	// ExchangeAddr is where it listens, host and port; an error says why it does not.
	ExchangeAddr() (string, error)
	// Send makes the agent at an address load a blob of this agent, Fetch returns its
	// whole metadata, and SendInvalidation makes it forget this agent.
	Send(ctx context.Context, addr string, blob []byte) error
	Fetch(ctx context.Context, addr string) (blob []byte, err error)
	SendInvalidation(ctx context.Context, addr string) error
}

func (a *Agent) exchanger() (MetadataExchanger, error) {
	why := fmt.Errorf("no transport of agent %q can: %w", a.self.Name, ErrNotSupported)
	for _, tr := range a.transports {
		if x, ok := tr.(MetadataExchanger); ok {
			_, err := x.ExchangeAddr()
			if err == nil {
				return x, nil
			}
			why = err
		}
	}
	return nil, fmt.Errorf("exchange metadata: %w", why)
}

// ExchangeAddr is the address that peers give to FetchMetadata and SendMetadata.
func (a *Agent) ExchangeAddr() (string, error) {
	x, err := a.exchanger()
	if err != nil {
		return "", err
	}
	return x.ExchangeAddr()
}

// SendMetadata makes the agent that listens at an address load a blob of this agent, as
// Metadata and PartialMetadata return it. Its error is that of LoadRemote there.
func (a *Agent) SendMetadata(ctx context.Context, addr string, blob []byte) error {
	x, err := a.exchanger()
	if err == nil {
		err = x.Send(ctx, addr, blob)
	}
	if err != nil {
		return fmt.Errorf("send metadata to %s: %w", addr, err)
	}
	return nil
}

// FetchMetadata loads the metadata of the agent that listens at an address and returns
// its name.
func (a *Agent) FetchMetadata(ctx context.Context, addr string) (string, error) {
	x, err := a.exchanger()
	if err != nil {
		return "", err
	}
	blob, err := x.Fetch(ctx, addr)
	if err != nil {
		return "", fmt.Errorf("fetch metadata from %s: %w", addr, err)
	}
	return a.LoadRemote(blob)
}

// SendInvalidation makes the agent that listens at an address forget this one.
func (a *Agent) SendInvalidation(ctx context.Context, addr string) error {
	x, err := a.exchanger()
	if err == nil {
		err = x.SendInvalidation(ctx, addr)
	}
	if err != nil {
		return fmt.Errorf("invalidate metadata at %s: %w", addr, err)
	}
	return nil
}

func (h host) Metadata() []byte                       { return h.a.Metadata() }
func (h host) LoadRemote(blob []byte) (string, error) { return h.a.LoadRemote(blob) }

func (h host) InvalidateFrom(from Identity) error {
	if !h.a.Known(from.Name, from.Incarnation) {
		return fmt.Errorf("invalidate %q: incarnation %s is not loaded: %w", from.Name, from.Incarnation, ErrNotFound)
	}
	return h.a.Invalidate(from.Name)
}
