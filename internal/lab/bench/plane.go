package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/natspipe"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/undo"
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

// readStreams reads n items over the given number of concurrent streams.
func readStreams(ctx context.Context, n, streams int, read func(context.Context, int) error) error {
	errs := make([]error, streams)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() { errs[i] = read(ctx, (i+1)*n/streams-i*n/streams) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

const (
	caseUnary = "unary call"
	keyItems  = "items_per_s"
	keyItemUS = "cpu_us_per_item"
)

// network is something that answers requests for tokens.
type network struct {
	name string
	one  func(context.Context) error      // a request with one item back
	read func(context.Context, int) error // a stream of so many
}

// networks returns the planes of the request plane, and gRPC. back ends them.
func networks(ctx context.Context, s *session, nats *natsServer, back *undo.Stack) ([]network, error) {
	key := handshake.RandomKey()
	server, err := nats.hub(s)
	if err != nil {
		return nil, err
	}
	caller, err := nats.hub(s)
	if err != nil {
		return nil, err
	}
	client := requestplane.NewClient(requestplane.ClientConfig{Key: key, Log: s.log, Pipes: func() (*natspipe.Hub, error) { return caller, nil }})
	back.Push("close the client", func(context.Context) error { return client.Close() })
	var all []network
	for _, plane := range []cluster.Plane{cluster.PlaneTCP, cluster.PlaneHTTP, cluster.PlaneNATS} {
		n, err := requestNetwork(plane, requestplane.ServerConfig{Key: key, Pipes: server, Log: s.log}, client, back)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	g, err := newGRPCPlane()
	if err != nil {
		return nil, err
	}
	back.Push("stop gRPC", func(context.Context) error { g.close(); return nil })
	all = append(all, network{"gRPC", g.one, g.read})
	for _, n := range all { // the first use makes connections
		if err := n.one(ctx); err != nil {
			return nil, fmt.Errorf("try out %s: %w", n.name, err)
		}
	}
	return all, nil
}

// requestNetwork starts a server of one plane.
func requestNetwork(plane cluster.Plane, cfg requestplane.ServerConfig, client requestplane.Client, back *undo.Stack) (network, error) {
	srv, err := requestplane.Listen(plane, cfg)
	if err != nil {
		return network{}, err
	}
	back.Push("stop the server", func(context.Context) error { return srv.Close() })
	const path = "1/tokens"
	if _, err := srv.Handle(path, answerTokens); err != nil {
		return network{}, err
	}
	c := caller{client, srv.Addr() + "/" + path}
	return network{string(plane), func(ctx context.Context) error { return c.read(ctx, 1) }, c.read}, nil
}

func requestPlane(ctx context.Context, s *session, sec *Section) error {
	nats, err := newNATSServer(ctx, s)
	if err != nil {
		return err
	}
	defer nats.back.Run(stopStep, s.log)
	var back undo.Stack
	defer back.Run(stopStep, s.log)
	all, err := networks(ctx, s, nats, &back)
	if err != nil {
		return err
	}
	raw, err := nats.rawRequests()
	if err != nil {
		return err
	}
	plain, err := newPingLoopback()
	if err != nil {
		return err
	}
	defer plain.close()
	sc := s.scale.plane
	cases := []Case{
		latencyCase(casePing, time.Microsecond, func(context.Context) ([]time.Duration, error) { return plain.pings(sc.calls) }),
		latencyCase(caseRawRequest, time.Microsecond, func(context.Context) ([]time.Duration, error) { return repeat(sc.calls, raw) }),
	}
	unary, rates := []string{casePing, caseRawRequest}, []string{}
	for _, n := range all {
		name := caseUnary + ", " + n.name
		unary = append(unary, name)
		cases = append(cases, latencyCase(name, time.Microsecond, func(ctx context.Context) ([]time.Duration, error) {
			return repeat(sc.calls, func() error { return n.one(ctx) })
		}))
		for _, streams := range sc.streams {
			rate := n.rateCase(sc.items, streams)
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
		res.table("Request plane, one item back", "NATS is embedded and speaks TLS, as in a dynamod; the others are in cleartext.", append(latencyColumns("µs"), Column{keyFactor, "× plain TCP", nixlFactor}), unary...),
		res.table("Request plane, streamed items", "Each item is the output of one token, encoded and decoded on its way.", []Column{
			{keyItems, "items/s", ""}, {keyItemUS, "CPU µs/item", "processor time of both sides"},
		}, rates...))
	return nil
}

// rateCase streams items over a number of concurrent streams.
func (n network) rateCase(items, streams int) Case {
	name := fmt.Sprintf("%d streams, %s", streams, n.name)
	if streams == 1 {
		name = "1 stream, " + n.name
	}
	return Case{name, func(ctx context.Context) (Sample, error) {
		begin := time.Now()
		before, known := cpuTime()
		if err := readStreams(ctx, items, streams, n.read); err != nil {
			return nil, err
		}
		out := Sample{keyItems: float64(items) / time.Since(begin).Seconds()}
		if after, _ := cpuTime(); known {
			out[keyItemUS] = float64((after - before).Microseconds()) / float64(items)
		}
		return out, nil
	}}
}
