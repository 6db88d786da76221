package requestplane

import "context"

// Handler answers one request. It calls send for each item of the answer, in
// order; send encodes the item as msgpack and blocks while the caller does not
// read (back-pressure). Send returns an error only when the answer can no longer
// reach the caller, and the handler should return then.
//
// The context ends when the caller leaves (cause [ErrStopped] when it closed the
// stream, [ErrClientGone] when its connection died), when the caller's deadline
// passes (cause [ErrTimeout]) or when the server closes (cause [ErrServerClosed]).
//
// A nil return ends the stream with the final marker. A returned [*RemoteError]
// reaches the caller as it is; any other error becomes one of kind internal.
// A panic is logged and becomes kind internal too.
type Handler func(ctx context.Context, req *Request, send func(item any) error) error

// Request is one request to a handler.
type Request struct {
	ID      string            // the caller's request id
	Path    string            // the endpoint path it was sent to
	Headers map[string]string // may be nil
	Body    []byte            // msgpack; the handler owns it
	// Stop is closed when the caller asks the handler to end soon, send what it has, and
	// return: [Stream.Stop]. It never is on a nil channel, or for callers that cannot ask.
	Stop <-chan struct{}
	// Stranger says that the caller has shown the token for calls, and has not proved the
	// cluster's secret: it may call endpoints, and not act as a node.
	Stranger bool
}

// Decode decodes the msgpack body into v, a pointer. If the body does not fit v, the
// error is a [*RemoteError] of kind invalid_argument, which the handler may return
// unchanged.
func (r *Request) Decode(v any) error {
	if err := decode(r.Body, v); err != nil {
		return &RemoteError{Kind: KindInvalidArgument, Message: err.Error()}
	}
	return nil
}

// Server offers endpoints to callers.
type Server interface {
	// Handle serves path, for example "694d9814/generate", until remove is called.
	// It fails with ErrEndpointExists if the path is taken and with
	// ErrServerClosed after Close.
	//
	// Remove makes the server refuse new requests for the path (the callers see
	// ErrDraining) and returns once the running ones have ended and their answers
	// are written; after that callers see ErrUnknownEndpoint. If ctx ends first it
	// returns an error and the endpoint stays refusing; remove may be called again.
	Handle(path string, h Handler) (remove func(ctx context.Context) error, err error)

	// Addr returns the address of the server: "host:port", "http://host:port/v1/rpc" on the
	// http plane, or "nats://subject" on the nats plane. The address of an endpoint is that, a slash and its path.
	Addr() string

	// InFlight returns the number of requests now running for path.
	InFlight(path string) int

	// Close cancels all running requests, closes all connections and waits a few seconds
	// at most for the handlers. The error says how many did not return. It is safe to
	// call more than once.
	Close() error
}

// Client sends requests.
type Client interface {
	// Call sends a request to addr, the address of an endpoint, and returns when it is on
	// its way. Ctx governs the whole exchange, as with an HTTP request: when it
	// ends, the handler is cancelled and Recv fails; its deadline travels with the
	// request. Body is encoded as msgpack; nil is allowed.
	//
	// Errors: ErrCannotConnect, ErrDisconnected, ErrTooLarge, ErrClientClosed, or
	// the cause of ctx. A refusal by the server (unknown endpoint, draining,
	// overloaded) arrives from the stream's first Recv.
	Call(ctx context.Context, addr, id string, headers map[string]string, body any) (Stream, error)

	// Close ends all streams and connections. It is safe to call more than once.
	Close() error
}

// Stream is the answer to one request.
type Stream interface {
	// Recv decodes the next item into v, a pointer, which is zeroed first; a nil v
	// skips the item. It returns io.EOF only after the server's final marker,
	// ErrIncomplete if the peer vanished before it, a *RemoteError if the server
	// or the handler failed, ErrStreamClosed after Close, and the cause of ctx when
	// ctx ends while waiting. In that last case no data is lost: a later Recv goes
	// on where this one stopped. All other errors are final and repeat.
	Recv(ctx context.Context, v any) error

	// Pending reports whether the next Recv has something to return at once: an item, or
	// the end. It is for the goroutine that calls Recv.
	Pending() bool

	// Stop asks the handler to end with what it has, see [Request.Stop]. The answer goes on
	// until its final marker; a handler that does not look runs to its end. Stop does not
	// block, may be called from any goroutine, and does nothing after the end or a second
	// time.
	Stop()

	// Close cancels the handler if it still runs and frees the stream. It does not
	// block and is safe to call more than once. Every stream must be closed or
	// read to its end.
	Close()
}
