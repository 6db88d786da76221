package nixl

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"
)

const (
	probeBytes    = 2 << 20
	probeLifetime = 5 * time.Second
	probeRounds   = 4
)

// castagnoli is the polynomial that processors have instructions for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// SelfTestResult holds the measurements of SelfTest.
type SelfTestResult struct {
	Transport string
	Bytes     int           // per round and direction
	RTT       time.Duration // of a transfer of 64 bytes, the shortest
	WriteGBps float64       // 1e9 bytes per second, the best round
	ReadGBps  float64
}

// SelfTest writes a random pattern into scratch memory of the peer, reads it back
// and compares, over the transport chosen for the peer. ErrMismatch means that bytes
// changed on the way. A peer serves one self-test at a time; others wait.
func (a *Agent) SelfTest(ctx context.Context, peer string) (SelfTestResult, error) {
	p := a.current(peer)
	if p == nil {
		return SelfTestResult{}, fmt.Errorf("self-test with %q: peer is not loaded: %w", peer, ErrNotFound)
	}
	res, err := a.selfTest(ctx, p)
	if err != nil {
		err = fmt.Errorf("self-test with %q over %s: %w", peer, p.transport.Name(), err)
		res = SelfTestResult{}
	} else {
		a.log.Info("nixl self-test passed", "peer", peer, "transport", res.Transport,
			"write_gbps", res.WriteGBps, "read_gbps", res.ReadGBps, "rtt", res.RTT)
	}
	a.mu.Lock()
	p.test = &PathTest{At: time.Now(), Result: res, Err: err}
	a.mu.Unlock()
	return res, err
}

func (a *Agent) selfTest(ctx context.Context, p *peer) (SelfTestResult, error) {
	ar, err := NewArena(probeBytes)
	if err != nil {
		return SelfTestResult{}, err
	}
	defer func() { _ = ar.Close() }() // refused if a canceled transfer still uses it: closed with the process then
	reg, err := a.regions.add(ar, DRAM, registerOptions{label: "self-test", private: true})
	if err != nil {
		return SelfTestResult{}, err
	}
	defer func() { _ = reg.Deregister() }()

	probe, err := openProbe(ctx, p)
	if err != nil {
		return SelfTestResult{}, err
	}
	defer p.transport.CloseProbe(p.Remote, probe.Ticket)
	if probe.Desc.Len < probeBytes {
		return SelfTestResult{}, fmt.Errorf("peer offers %d bytes: %w", probe.Desc.Len, ErrMismatch)
	}

	// What the peer's owner sees and what is read must be the same memory: a path that
	// leads elsewhere would return what was written, too.
	if _, err := a.probeRound(ctx, Read, reg, p, probe, probeBytes); err != nil {
		return SelfTestResult{}, err
	}
	if sum := crc32.Checksum(ar.Bytes(), castagnoli); probe.Sum != 0 && sum != probe.Sum {
		return SelfTestResult{}, fmt.Errorf("the peer's pattern has checksum %#x, read was %#x: %w", probe.Sum, sum, ErrMismatch)
	}

	res := SelfTestResult{Transport: p.transport.Name(), Bytes: probeBytes}
	for range probeRounds {
		took, err := a.probeRound(ctx, Read, reg, p, probe, 64)
		if err != nil {
			return SelfTestResult{}, err
		}
		if res.RTT == 0 || took < res.RTT {
			res.RTT = took
		}
	}
	gbps := func(took time.Duration) float64 { return probeBytes / 1e9 / max(took.Seconds(), 1e-9) }
	want := make([]byte, probeBytes)
	for range probeRounds {
		fillRandom(want)
		copy(ar.Bytes(), want)
		took, err := a.probeRound(ctx, Write, reg, p, probe, probeBytes)
		if err != nil {
			return SelfTestResult{}, err
		}
		w := gbps(took)
		clear(ar.Bytes())
		if took, err = a.probeRound(ctx, Read, reg, p, probe, probeBytes); err != nil {
			return SelfTestResult{}, err
		}
		r := gbps(took)
		if !bytes.Equal(ar.Bytes(), want) {
			return SelfTestResult{}, fmt.Errorf("the pattern came back changed: %w", ErrMismatch)
		}
		res.WriteGBps, res.ReadGBps = max(res.WriteGBps, w), max(res.ReadGBps, r)
	}
	return res, nil
}

func openProbe(ctx context.Context, p *peer) (Probe, error) {
	for {
		probe, err := p.transport.OpenProbe(ctx, p.Remote)
		if err == nil || !errors.Is(err, ErrBackend) {
			return probe, err
		}
		select { // another peer tests now
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return Probe{}, errors.Join(context.Cause(ctx), err)
		}
	}
}

// probeRound moves the first n bytes of a probe.
func (a *Agent) probeRound(ctx context.Context, op Op, reg *Region, p *peer, probe Probe, n uint64) (took time.Duration, err error) {
	probe.Desc.Len = n
	t, err := a.newTransfer(op, []Desc{reg.Desc(0, n)}, []Desc{probe.Desc}, p, TransferOpts{Ticket: probe.Ticket})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	t.Post()
	if err := t.Wait(ctx); err != nil {
		t.Release()
		<-t.Done() // bounded: a canceled transfer ends
		return 0, err
	}
	return time.Since(start), nil
}

// fillRandom writes a pattern like no other, of which no piece is found elsewhere: a path that moves
// some bytes to another place does not pass. The cipher draws it at the speed of memory.
func fillRandom(b []byte) {
	var key, start [aes.BlockSize]byte
	_, _ = rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // no length but that of a key
	}
	cipher.NewCTR(block, start[:]).XORKeyStream(b, b)
}

// probeSlot is the scratch memory an agent lends to the self-test of a peer,
// allocated at first use.
type probeSlot struct {
	mu     sync.Mutex
	arena  *Arena
	region *Region
	ticket TicketID
	closed bool
}

func (a *Agent) openProbe(from string) (Probe, error) {
	s := &a.probes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // a peer in this process may ask until the last moment, and later
		return Probe{}, errClosing
	}
	if a.tickets.isOpen(s.ticket) {
		return Probe{}, fmt.Errorf("lend scratch memory to %q: another self-test is running: %w", from, ErrBackend)
	}
	if s.region == nil {
		ar, err := NewArena(probeBytes)
		if err != nil {
			return Probe{}, err
		}
		if s.region, err = a.regions.add(ar, DRAM, registerOptions{label: "self-test", private: true}); err != nil {
			return Probe{}, errors.Join(err, ar.Close())
		}
		s.arena = ar
	}
	fillRandom(s.arena.Bytes()[:probeBytes]) // nobody else has a ticket for it
	sum := crc32.Checksum(s.arena.Bytes()[:probeBytes], castagnoli)
	d := s.region.Desc(0, probeBytes)
	id, err := a.tickets.openTicket(TicketSpec{Descs: []Desc{d}, Deadline: time.Now().Add(probeLifetime), Tag: "self-test of " + from}, true)
	if err != nil {
		return Probe{}, err
	}
	s.ticket = id
	return Probe{Ticket: id, Desc: d, Sum: sum}, nil
}

// closeProbe ends the probe early; a peer may only end the one it was lent.
func (a *Agent) closeProbe(id TicketID) {
	a.probes.mu.Lock()
	mine := !id.IsZero() && id == a.probes.ticket
	a.probes.mu.Unlock()
	if mine {
		a.tickets.stopID(id)
	}
}

func (s *probeSlot) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.region != nil && s.region.Deregister() == nil {
		_ = s.arena.Close()
	}
}
