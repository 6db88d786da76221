package nixl

import (
	"log/slog"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
)

// Config describes an agent. Only Name is required.
type Config struct {
	// Name identifies the agent among its peers, at most 255 bytes. At any time one
	// live agent bears it; a restarted worker may take it again.
	Name string
	// Incarnation tells two runs under one name apart. Empty means a random UUID.
	Incarnation string
	// HostID identifies the machine (boot id); peers with the same one are expected
	// to find a better transport than tcp. May be empty.
	HostID string
	// Key is the secret that peers prove to know before anything else, and this agent proves to
	// them. Transports that other processes reach do not start without one.
	Key handshake.Key
	// Transports are the ways to reach peers, best first. The first that reaches a
	// peer is used for all transfers to it. The agent closes them.
	Transports []Transport
	// Force, when not empty, names the only transports this agent may choose for
	// its own transfers; their order does not matter. Peers still reach it through all
	// Transports. NewAgent fails when one of them is missing or cannot be used here.
	Force []string
	// TransferTimeout bounds a transfer without a deadline of its own; default 60 s.
	TransferTimeout time.Duration
	// StagingPatience limits the time for which a transfer asks again a peer that has no staging memory
	// free; default 2 s.
	StagingPatience time.Duration
	// OnNotify, when set, receives every notification, one at a time, instead of
	// the channel of [Agent.Notifications]. While it runs no other is delivered.
	OnNotify func(Notification)
	// Log may be nil.
	Log *slog.Logger
	// Limits bound what peers and callers can make the agent hold.
	Limits Limits
}

// KeyPurpose is the purpose with which Config.Key is derived from the cluster's secret.
const KeyPurpose = "nixl"

// Limits bound the memory of an agent. Zero fields take the default.
type Limits struct {
	Tickets     int   // open tickets; default 65536
	Descs       int   // descriptors in one transfer or ticket; default DefaultDescs
	Outstanding int   // posted transfers; default 4096
	NotifySize  int   // bytes of one notification; default 64 KiB
	NotifyBytes int64 // bytes of undelivered notifications before senders wait; default 4 MiB
	Peers       int   // remembered peers; default 4096
	Regions     int   // registered regions; default 16384
	// StagingBytes is host memory that stands in for memory of devices, for each of the
	// two directions (own transfers, accesses of peers); default 64 MiB. It takes room
	// only as far as it is used.
	StagingBytes int64
}

// DefaultDescs is the default of Limits.Descs.
const DefaultDescs = 16384

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Tickets, 65536)
	def(&l.Descs, DefaultDescs)
	def(&l.Outstanding, 4096)
	def(&l.NotifySize, 64<<10)
	def(&l.Peers, 4096)
	def(&l.Regions, 16384)
	if l.NotifyBytes <= 0 {
		l.NotifyBytes = 4 << 20
	}
	if l.StagingBytes <= 0 {
		l.StagingBytes = 64 << 20
	}
	return l
}

func (c Config) logger() *slog.Logger {
	if c.Log != nil {
		return c.Log
	}
	return slog.New(slog.DiscardHandler)
}
