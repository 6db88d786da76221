package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

func measurePlane(ctx context.Context, s *session) (Section, error) {
	sec := Section{
		Title: "Planes",
		About: "Everything runs in one process and talks over the loopback interface, as the parts of\n" +
			"one node do. Stores write to the state directory. Plain TCP is one connection with\n" +
			"messages of 64 bytes.",
	}
	if err := requestPlane(ctx, s, &sec); err != nil {
		return sec, err
	}
	err := storePlanes(ctx, s, &sec)
	return sec, err
}

// answerTokens sends the requested number of outputs, each of one token.
func answerTokens(_ context.Context, req *requestplane.Request, send func(any) error) error {
	var n int
	if err := req.Decode(&n); err != nil {
		return err
	}
	out := protocol.EngineOutput{TokenIDs: []uint32{0}}
	for i := range n {
		out.TokenIDs[0] = uint32(i)
		if err := send(&out); err != nil {
			return err
		}
	}
	return nil
}

// caller requests tokens.
type caller struct {
	client requestplane.Client
	addr   string
}

func (c caller) read(ctx context.Context, n int) error {
	st, err := c.client.Call(ctx, c.addr, "bench", nil, n)
	if err != nil {
		return err
	}
	defer st.Close()
	got := 0
	for {
		var out protocol.EngineOutput
		err := st.Recv(ctx, &out)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		got += len(out.TokenIDs)
	}
	if got != n {
		return fmt.Errorf("%d items arrived, %d were asked for", got, n)
	}
	return nil
}

// readAll reads n items over the given number of concurrent streams.
func (c caller) readAll(ctx context.Context, n, streams int) error {
	errs := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { errs[i] = c.read(ctx, (i+1)*n/streams-i*n/streams) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

const (
	caseUnary = "unary call"
	keyItems  = "items_per_s"
	keyItemUS = "cpu_us_per_item"
)

// planes are the networks of the request plane, in the order of the tables.
var planes = []struct {
	name   string
	listen func(requestplane.ServerConfig) (requestplane.Server, error)
}{
	{"tcp", func(cfg requestplane.ServerConfig) (requestplane.Server, error) { return requestplane.ListenTCP(cfg) }},
	{"http", func(cfg requestplane.ServerConfig) (requestplane.Server, error) { return requestplane.ListenHTTP(cfg) }},
}

func requestPlane(ctx context.Context, s *session, sec *Section) error {
	key := handshake.RandomKey()
	client := requestplane.NewClient(requestplane.ClientConfig{Key: key, Log: s.log})
	defer func() { _ = client.Close() }() // no stream is open
	plain, err := newPingLoopback()
	if err != nil {
		return err
	}
	defer plain.close()
	sc := s.scale.plane
	cases := []Case{
		latencyCase(casePing, time.Microsecond, func(context.Context) ([]time.Duration, error) { return plain.pings(sc.calls) }),
	}
	unary, rates := []string{casePing}, []string{}
	for _, plane := range planes {
		srv, err := plane.listen(requestplane.ServerConfig{Key: key, Log: s.log})
		if err != nil {
			return err
		}
		defer func() { _ = srv.Close() }() // no request is running
		const path = "1/tokens"
		if _, err := srv.Handle(path, answerTokens); err != nil {
			return err
		}
		c := caller{client, srv.Addr() + "/" + path}
		name := caseUnary + ", " + plane.name
		unary = append(unary, name)
		cases = append(cases, latencyCase(name, time.Microsecond, func(ctx context.Context) ([]time.Duration, error) {
			return repeat(sc.calls, func() error { return c.read(ctx, 1) })
		}))
		for _, n := range sc.streams {
			rate := c.rateCase(plane.name, sc.items, n)
			rates, cases = append(rates, rate.Name), append(cases, rate)
		}
	}
	res, err := s.takeTurns(ctx, "request plane", sc.turns, cases)
	if err != nil {
		return err
	}
	for _, name := range unary[1:] {
		res.ratio(name, keyFactor, keyLatency+"_p50", casePing, 1)
	}
	sec.Tables = append(sec.Tables,
		res.table("Request plane, one item back", "", append(latencyColumns("µs"), Column{keyFactor, "× plain TCP", nixlFactor}), unary...),
		res.table("Request plane, streamed items", "Each item is the output of one token, encoded and decoded on its way.", []Column{
			{keyItems, "items/s", ""}, {keyItemUS, "CPU µs/item", "processor time of both sides"},
		}, rates...))
	return nil
}

// rateCase streams items over a number of concurrent streams.
func (c caller) rateCase(plane string, items, streams int) Case {
	name := fmt.Sprintf("%d streams, %s", streams, plane)
	if streams == 1 {
		name = "1 stream, " + plane
	}
	return Case{name, func(ctx context.Context) (Sample, error) {
		begin := time.Now()
		before, known := cpuTime()
		if err := c.readAll(ctx, items, streams); err != nil {
			return nil, err
		}
		out := Sample{keyItems: float64(items) / time.Since(begin).Seconds()}
		if after, _ := cpuTime(); known {
			out[keyItemUS] = float64((after - before).Microseconds()) / float64(items)
		}
		return out, nil
	}}
}
