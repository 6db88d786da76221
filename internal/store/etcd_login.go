package store

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// loginPause is the minimum time between two logins. etcd hashes the password for
	// each, which is slow by design.
	loginPause = 200 * time.Millisecond
	// loginRefused is the time for which a refusal of the credentials is repeated without
	// asking etcd again. After that the password may have been corrected.
	loginRefused = 5 * time.Second
	// loginHeader separates the streams of one login from those of another. The client
	// library puts watches with equal metadata on one stream, and a stream keeps the
	// token that it was opened with.
	loginHeader = "dynctl-login"
)

// login keeps the token that etcd issues for a user name and a password, and adds it to
// every call. It replaces a token that etcd refuses. Tokens become invalid when the
// server that issued them stops, and with every change of users and roles.
//
// The client library's own login is not used. It sends the old token along when it asks
// for a new one, and etcd before 3.5 keeps refusing the request because of that token.
type login struct {
	user, password string
	log            *slog.Logger
	asking         chan struct{} // capacity 1: held while asking for a token

	mu         sync.Mutex
	valid      bool   // token is the latest and was not refused since
	token      string // empty when etcd needs none
	generation int    // of the token

	// The last login that etcd answered; the holder of asking owns these.
	asked   time.Time
	refusal error // nil after a success
}

func newLogin(user, password string, log *slog.Logger) *login {
	return &login{user: user, password: password, log: log, asking: make(chan struct{}, 1)}
}

// dialOptions returns the options that make a connection log in.
func (l *login) dialOptions() []grpc.DialOption {
	if l == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)}
}

// unary sends a call with the token. If the token is refused, it sends the call once more
// with a new one. etcd has not executed a refused call, so that repeating it is safe.
func (l *login) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	for again := false; ; again = true {
		token, err := l.current(ctx, cc, opts)
		if err != nil {
			return err
		}
		err = invoke(withToken(ctx, token), method, req, reply, cc, opts...)
		if !tokenRefused(err) {
			return err
		}
		l.drop(token)
		if again {
			return err
		}
	}
}

// stream opens a stream with the token. It drops the token when the stream ends because
// of it.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.current(ctx, cc, opts)
	if err != nil {
		return nil, err
	}
	s, err := open(withToken(ctx, token), desc, cc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &loginStream{ClientStream: s, login: l, token: token}, nil
}

type loginStream struct {
	grpc.ClientStream
	login *login
	token string
}

// RecvMsg implements [grpc.ClientStream].
func (s *loginStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if tokenRefused(err) {
		s.login.drop(s.token)
	}
	return err
}

func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// tokenRefused reports whether etcd wants another token than that of the call.
func tokenRefused(err error) bool {
	if err == nil {
		return false
	}
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// drop discards a refused token, unless it was replaced in the meantime.
func (l *login) drop(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.valid && l.token == token {
		l.valid = false
	}
}

// suspect discards the token because the connection may lead to another server, or to
// other data. Trying the token would not tell. A token contains the length of the log at
// which it was issued, and a server with a shorter log does not refuse it, but waits.
func (l *login) suspect() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.valid = false
}

// known returns the current token; ok is false when there is none.
func (l *login) known() (token string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token, l.valid
}

// current returns the current token, or logs in to get one. Only one caller at a time
// logs in.
func (l *login) current(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (string, error) {
	if token, ok := l.known(); ok {
		return token, nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return "", status.FromContextError(ctx.Err()).Err()
	}
	if token, ok := l.known(); ok {
		return token, nil
	}
	if l.refusal != nil && time.Since(l.asked) < loginRefused {
		return "", l.refusal
	}
	if sleep(ctx, loginPause-time.Since(l.asked)); ctx.Err() != nil {
		return "", status.FromContextError(ctx.Err()).Err()
	}
	return l.ask(ctx, cc, opts)
}

// ask logs in. It waits for a connection if the call that needs the token would.
func (l *login) ask(ctx context.Context, cc *grpc.ClientConn, opts []grpc.CallOption) (string, error) {
	var waits []grpc.CallOption
	for _, o := range opts {
		if w, ok := o.(grpc.FailFastCallOption); ok {
			waits = append(waits, w)
		}
	}
	resp, err := pb.NewAuthClient(cc).Authenticate(ctx, &pb.AuthenticateRequest{Name: l.user, Password: l.password}, waits...)
	switch etcdErr := rpctypes.Error(err); {
	case err == nil:
	case errors.Is(etcdErr, rpctypes.ErrAuthNotEnabled):
		resp = &pb.AuthenticateResponse{}
	case errors.Is(etcdErr, rpctypes.ErrAuthFailed):
		l.refusal, l.asked = err, time.Now()
		return "", err
	default:
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal, l.asked = nil, time.Now()
	l.token, l.valid = resp.Token, true
	l.generation++
	if l.generation > 1 {
		l.log.Info("logged in to etcd again", "user", l.user)
	}
	return l.token, nil
}

// first logs in before the first call, so that wrong credentials are noticed at once.
func (l *login) first(cc *grpc.ClientConn, timeout time.Duration) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := l.current(ctx, cc, []grpc.CallOption{grpc.WaitForReady(true)})
	return rpctypes.Error(err)
}

// watching marks a context so that its watches use a stream of the current log-in.
func (l *login) watching(ctx context.Context) context.Context {
	if l == nil {
		return ctx
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return metadata.AppendToOutgoingContext(ctx, loginHeader, strconv.Itoa(l.generation))
}
