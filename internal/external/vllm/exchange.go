package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

// lease is how long a server keeps blocks for a decode server, by default: the value of
// kv_lease_duration. Older releases keep them longer.
const lease = 30 * time.Second

// defaultBootstrapPort is VLLM_MOONCAKE_BOOTSTRAP_PORT.
const defaultBootstrapPort = 8998

// maxHandoff bounds what a server tells a decode server, in bytes.
const maxHandoff = 8 << 20

// remoteDecode asks a server to compute a prompt for another one, which NIXL will have read it.
const remoteDecode = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

func joinHostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func (e *Engine) bootstrapPort() int {
	if p := e.config.Engine.Server.BootstrapPort; p != 0 {
		return p
	}
	return defaultBootstrapPort
}

// Prefill implements external.Engine.
func (e *Engine) Prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	p, err := e.prefill(ctx, r)
	return p, wire.Remote(ctx, err)
}

func (e *Engine) prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	header := wire.RequestID(r)
	params, err := e.firstParams(r, header)
	if err != nil {
		return external.Prefilled{}, err
	}
	path, body, err := e.legRequest(ctx, r, params)
	if err != nil {
		return external.Prefilled{}, err
	}
	answer, err := e.client.Compute(ctx, path, header, body)
	if err != nil {
		return external.Prefilled{}, err
	}
	if err := e.client.Failure(path, answer); err != nil {
		return external.Prefilled{}, err
	}
	var reply struct {
		Params json.RawMessage `json:"kv_transfer_params"`
		Usage  *wire.Usage     `json:"usage"`
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		return external.Prefilled{}, fmt.Errorf("%s: %w", path, err)
	}
	p := external.Prefilled{PromptTokens: -1, CachedTokens: reply.Usage.Cached()}
	if reply.Usage != nil {
		p.PromptTokens = reply.Usage.Prompt
	}
	if e.connector == connectorMooncake {
		return p, nil
	}
	p.Lease = lease
	p.Handoff, err = e.handoff(reply.Params)
	return p, err
}

// firstParams returns the params of a first leg. With Mooncake it also pins the rank.
func (e *Engine) firstParams(r *external.Request, header http.Header) (json.RawMessage, error) {
	switch e.connector {
	case connectorNIXL:
		return json.RawMessage(remoteDecode), nil
	case connectorMooncake:
		m, err := meetingOf(r.Meeting)
		if err != nil {
			return nil, err
		}
		header.Set("X-data-parallel-rank", m.rank)
		var o wire.Object
		o.Bool("do_remote_decode", true)
		o.Bool("do_remote_prefill", false)
		o.Text("transfer_id", m.transfer)
		return o.Bytes(), nil
	}
	return nil, wire.Unavailable("the server exchanges no KV: its connector is %q", e.connector)
}

// legRequest returns the request of a first leg.
func (e *Engine) legRequest(ctx context.Context, r *external.Request, params json.RawMessage) (path string, body []byte, err error) {
	if r.Body == nil {
		d, err := e.dialect(ctx)
		if err != nil {
			return "", nil, err
		}
		return d.tokenRequest(r, firstHalf, params)
	}
	b, err := wire.ClientBody(r.Body, r.Model)
	if err != nil {
		return "", nil, err
	}
	if err := external.Splittable(r.Body); err != nil {
		return "", nil, wire.Invalid("%v", err)
	}
	if path, err = wire.Path(r.API); err != nil {
		return "", nil, err
	}
	if err := embedded(b, r.Encoded); err != nil {
		return "", nil, err
	}
	b = firstLeg(b)
	b.Set("kv_transfer_params", params)
	return path, b.Bytes(), nil
}

// handoff returns what a prefill server tells a decode server, byte for byte but for the host
// that an operator has set.
func (e *Engine) handoff(params json.RawMessage) (json.RawMessage, error) {
	if wire.IsNull(params) {
		return nil, wire.Unavailable("the server computed the prompt but told nothing for a decode server (no kv_transfer_params): start it with --kv-transfer-config and the NixlConnector")
	}
	if err := checkHandoff(params); err != nil {
		return nil, wire.Unavailable("%v", err)
	}
	b, err := wire.ParseBody(params)
	if err != nil {
		return nil, wire.Unavailable("kv_transfer_params: %v", err)
	}
	host := e.config.Engine.Server.Host
	if host == "" {
		e.checkHost(b)
		return params, nil
	}
	if err := b.Single("remote_host"); err != nil {
		return nil, wire.Unavailable("kv_transfer_params: %v", err)
	}
	b.Set("remote_host", wire.Text(host))
	return b.Bytes(), nil
}

// checkHost warns, once, of a server that tells decode servers an address that is their own
// machine: the default of VLLM_NIXL_SIDE_CHANNEL_HOST, with which no other machine gets KV.
func (e *Engine) checkHost(params *wire.Body) {
	var told string
	if json.Unmarshal(params.Get("remote_host"), &told) != nil || !loopback(told) || loopback(e.client.Host()) {
		return
	}
	e.warned.Do(func() {
		e.log.Warn("prefill server tells decode servers a loopback address for its KV: set VLLM_NIXL_SIDE_CHANNEL_HOST, or host in the topology", "remote_host", told, "server", e.client.Host())
	})
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkHandoff reports whether a handoff can be one.
func checkHandoff(h json.RawMessage) error {
	if len(h) > maxHandoff {
		return fmt.Errorf("kv_transfer_params: longer than %d bytes", maxHandoff)
	}
	if _, err := wire.ParseBody(h); err != nil {
		return fmt.Errorf("kv_transfer_params: not an object")
	}
	return nil
}

// secondParams returns the params of r as a second leg; nil if it is none.
func (e *Engine) secondParams(r *external.Request) (json.RawMessage, error) {
	switch {
	case r.Handoff == nil && r.Meeting == nil:
		return nil, nil
	case r.Handoff != nil && e.connector == connectorNIXL:
		if err := checkHandoff(r.Handoff); err != nil {
			return nil, wire.Invalid("%v", err)
		}
		return r.Handoff, nil
	case r.Meeting != nil && e.connector == connectorMooncake:
		m, err := meetingOf(r.Meeting)
		if err != nil {
			return nil, err
		}
		var o wire.Object
		o.Bool("do_remote_prefill", true)
		o.Bool("do_remote_decode", false)
		o.Text("transfer_id", m.transfer)
		o.Text("remote_bootstrap_addr", "http://"+joinHostPort(r.Meeting.Host, r.Meeting.Port))
		o.Text("remote_engine_id", m.engine)
		return o.Bytes(), nil
	}
	return nil, wire.Unavailable("the server's connector is %q: it takes no KV in this way", e.connector)
}

// meeting is what both legs of a concurrent exchange derive from its room.
type meeting struct {
	transfer string
	rank     string // of the prefill server's data-parallel ranks
	engine   string // of that rank
}

// meetingOf chooses the rank by the room, as both legs must.
func meetingOf(m *external.Meeting) (meeting, error) {
	if m == nil {
		return meeting{}, wire.Unavailable("an exchange over Mooncake needs a place where servers meet")
	}
	engines, err := readEngines(m.Params)
	if err != nil {
		return meeting{}, wire.Unavailable("%v", err)
	}
	rank := strconv.FormatUint(m.Room%uint64(len(engines)), 10)
	return meeting{transfer: "xfer-" + strconv.FormatUint(m.Room, 16), rank: rank, engine: engines[rank]}, nil
}

// readEngines reads the answer of Mooncake's bootstrap server: the engine of each rank.
func readEngines(params json.RawMessage) (map[string]string, error) {
	var ranks map[string]struct {
		Engine string `json:"engine_id"`
	}
	if err := json.Unmarshal(params, &ranks); err != nil || len(ranks) == 0 {
		return nil, fmt.Errorf("the bootstrap server names no engines")
	}
	engines := make(map[string]string, len(ranks))
	for i := range len(ranks) {
		rank := strconv.Itoa(i)
		if engines[rank] = ranks[rank].Engine; engines[rank] == "" {
			return nil, fmt.Errorf("the bootstrap server names no engine of rank %d", i)
		}
	}
	return engines, nil
}
