package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynctl/dynctl/internal/protocol"
)

// grpcPlane answers as answerTokens does, over gRPC in cleartext, in the same encoding.
type grpcPlane struct {
	srv  *grpc.Server
	conn *grpc.ClientConn
	done chan struct{}
}

// rawCodec passes messages through, which are *[]byte.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", v)
	}
	return *b, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message of type %T", v)
	}
	*b = append((*b)[:0], data...) // the library uses data again
	return nil
}

const (
	grpcService = "bench.Tokens"
	grpcOne     = "/" + grpcService + "/One"
	grpcMany    = "/" + grpcService + "/Many"
)

func newGRPCPlane() (*grpcPlane, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &grpcPlane{srv: grpc.NewServer(grpc.ForceServerCodec(rawCodec{})), done: make(chan struct{})}
	p.srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpcService, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "One", Handler: grpcAnswerOne}},
		Streams: []grpc.StreamDesc{{StreamName: "Many", ServerStreams: true, Handler: grpcAnswerMany}},
	}, struct{}{})
	go func() {
		defer close(p.done)
		_ = p.srv.Serve(ln) // until Stop
	}()
	p.conn, err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	if err != nil {
		p.srv.Stop()
		<-p.done
		return nil, err
	}
	return p, nil
}

func (p *grpcPlane) close() {
	_ = p.conn.Close() // no call is running
	p.srv.Stop()
	<-p.done
}

func grpcAnswerOne(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the library has this order
	var body []byte
	var n int
	if err := decode(&body); err != nil {
		return nil, err
	}
	if err := protocol.Unmarshal(body, &n); err != nil {
		return nil, err
	}
	b, err := protocol.Marshal(&protocol.EngineOutput{TokenIDs: []uint32{0}})
	return &b, err
}

func grpcAnswerMany(_ any, stream grpc.ServerStream) error {
	var body []byte
	var n int
	if err := stream.RecvMsg(&body); err != nil {
		return err
	}
	if err := protocol.Unmarshal(body, &n); err != nil {
		return err
	}
	out := protocol.EngineOutput{TokenIDs: []uint32{0}}
	for i := range n {
		out.TokenIDs[0] = uint32(i)
		b, err := protocol.Marshal(&out)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(&b); err != nil {
			return err
		}
	}
	return nil
}

// one makes one unary call.
func (p *grpcPlane) one(ctx context.Context) error {
	body, err := protocol.Marshal(1)
	if err != nil {
		return err
	}
	var answer []byte
	if err := p.conn.Invoke(ctx, grpcOne, &body, &answer); err != nil {
		return err
	}
	var out protocol.EngineOutput
	return protocol.Unmarshal(answer, &out)
}

// read reads n items of one stream.
func (p *grpcPlane) read(ctx context.Context, n int) error {
	body, err := protocol.Marshal(n)
	if err != nil {
		return err
	}
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, grpcMany)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&body), stream.CloseSend()); err != nil {
		return err
	}
	var answer []byte
	for got := 0; ; got++ {
		err := stream.RecvMsg(&answer)
		if errors.Is(err, io.EOF) && got == n {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d of %d items: %w", got, n, err)
		}
		var out protocol.EngineOutput
		if err := protocol.Unmarshal(answer, &out); err != nil {
			return err
		}
	}
}
