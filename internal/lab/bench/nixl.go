package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	caseMemcpy   = "memcpy, 1 core"
	caseLoopback = "plain TCP, 2 connections"
	sampleBytes  = 16 << 20 // at least, in one sample
	casePing     = "plain TCP"

	keyMemcpy  = "percent_of_memcpy"
	keyPlain   = "percent_of_plain_tcp"
	keyFactor  = "times_plain_tcp"
	tcpConns   = 2 // as many as the tcp transport opens by default
	nixlFactor = "p50 against that of a round trip over a plain TCP connection"
)

func measureNIXL(ctx context.Context, s *session) (Section, error) {
	sc := s.scale.nixl
	sec := Section{
		Title: "NIXL transfers",
		About: fmt.Sprintf("Blocks are moved between two agents of one process, from and to random places in %s on\n"+
			"both sides, with a notification at the end. memcpy copies the same blocks with one core, as\n"+
			"the local and shm transports do on a node (shm through mappings of its own, as between\n"+
			"processes); plain TCP moves them in order over as many loopback connections as the tcp\n"+
			"transport opens. The ucx transport works over whatever network UCX finds, RDMA or not;\n"+
			"ucx_perftest, of UCX itself, gets the same settings and sends as many messages as there are\n"+
			"blocks, each as long as one, from one place to one place.", bytesText(int64(sc.bytes))),
	}
	from, err := newBuffer(sc.bytes)
	if err != nil {
		return sec, err
	}
	defer from.close()
	to, err := newBuffer(sc.bytes)
	if err != nil {
		return sec, err
	}
	defer to.close()
	src, dst := from.Bytes(), to.Bytes()
	pairs, err := newPairs(from, to)
	if err != nil {
		return sec, err
	}
	defer pairs.close()
	if _, note := ucxRoutes(); note != "" {
		sec.Notes = append(sec.Notes, note)
	}
	if err := nixlTransfers(ctx, s, &sec, pairs, src, dst); err != nil {
		return sec, err
	}
	err = nixlPings(ctx, s, &sec, pairs)
	return sec, err
}

func nixlTransfers(ctx context.Context, s *session, sec *Section, pairs pairs, src, dst []byte) error {
	type key struct{ name, memcpy, plain, perftest string }
	var cases []Case
	var keys []key
	other, note := findPerftest()
	for _, shape := range s.scale.nixl.shapes {
		size, total := shape.block, shape.bytes()
		from, to := rand.Perm(len(src) / size)[:shape.count], rand.Perm(len(src) / size)[:shape.count]
		at := func(name string) string { return fmt.Sprintf("%s, %d × %s", name, shape.count, blockText(size)) }
		lo, err := newCopyLoopback(tcpConns, dst[:total])
		if err != nil {
			return err
		}
		defer lo.close() // few, and all are used until the last round
		add := func(name string, f func(context.Context) error) {
			cases = append(cases, Case{at(name), rate(total, f)})
			keys = append(keys, key{name: at(name), memcpy: at(caseMemcpy), plain: at(caseLoopback)})
		}
		add(caseMemcpy, func(context.Context) error {
			for i := range from {
				copy(dst[to[i]*size:(to[i]+1)*size], src[from[i]*size:(from[i]+1)*size])
			}
			return nil
		})
		for _, p := range pairs {
			for _, op := range p.ops {
				t, err := p.transfer(op, size, from, to)
				if err != nil {
					return err
				}
				if err := p.prove(ctx, op, t, src, dst, size, from, to); err != nil {
					return err
				}
				add(fmt.Sprintf("%s, %s", p.name, op), func(ctx context.Context) error { return p.move(ctx, op, t) })
				if p.name == ucxRouteName && other != nil {
					keys[len(keys)-1].perftest = at(perftestProgram + " " + other.byOp[op])
				}
			}
		}
		if other != nil {
			for _, test := range other.tests {
				cases = append(cases, Case{at(perftestProgram + " " + test), other.sample(test, shape)})
			}
		}
		add(caseLoopback, func(context.Context) error { return lo.copyFrom(src[:total]) })
	}
	res, err := s.takeTurns(ctx, "nixl transfers", s.scale.nixl.turns, cases)
	if err != nil {
		return err
	}
	for _, k := range keys {
		res.ratio(k.name, keyMemcpy, keyGBps, k.memcpy, 100)
		res.ratio(k.name, keyPlain, keyGBps, k.plain, 100)
		res.ratio(k.name, keyPerftest, keyGBps, k.perftest, 100)
	}
	sec.Tables = append(sec.Tables, res.table("Transfers", "", []Column{
		{keyGBps, "GB/s", ""}, {keyMemcpy, "% of memcpy", "of the same blocks"}, {keyPlain, "% of plain TCP", ""},
		{keyPerftest, "% of ucx_perftest", ""},
	}).removeEmpty())
	for _, note := range []string{note, other.note()} {
		if note != "" {
			sec.Notes = append(sec.Notes, note)
		}
	}
	return nil
}

// rate measures how fast f moves total bytes.
func rate(total int, f func(context.Context) error) func(context.Context) (Sample, error) {
	times := max(1, sampleBytes/total)
	return func(ctx context.Context) (Sample, error) {
		begin := time.Now()
		for range times {
			if err := f(ctx); err != nil {
				return nil, err
			}
		}
		return Sample{keyGBps: float64(times*total) / 1e9 / time.Since(begin).Seconds()}, nil
	}
}

func nixlPings(ctx context.Context, s *session, sec *Section, pairs pairs) error {
	plain, err := newPingLoopback()
	if err != nil {
		return err
	}
	defer plain.close()
	n := s.scale.nixl.pings
	cases := []Case{latencyCase(casePing, time.Microsecond, func(context.Context) ([]time.Duration, error) { return plain.pings(n) })}
	for _, p := range pairs {
		cases = append(cases, latencyCase(p.name, time.Microsecond, func(ctx context.Context) ([]time.Duration, error) {
			return repeat(n, func() error { return p.ping(ctx) })
		}))
	}
	res, err := s.takeTurns(ctx, "nixl notifications", s.scale.nixl.turns, cases)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		res.ratio(p.name, keyFactor, keyLatency+"_p50", casePing, 1)
	}
	sec.Tables = append(sec.Tables, res.table("Notification round trip",
		"A message of 64 bytes there and one back, each acknowledged by the agent that got it.",
		append(latencyColumns("µs"), Column{keyFactor, "× plain TCP", nixlFactor})))
	return nil
}

func blockText(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
