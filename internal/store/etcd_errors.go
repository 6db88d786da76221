package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynctl/dynctl/internal/cluster"
)

// explain turns an error of the etcd client into one line that names the call, the
// endpoints and the cause. ctx is the context of the call.
func (e *Etcd) explain(ctx context.Context, verb, subject string, err error) error {
	if err == nil {
		return nil
	}
	call := verb
	if subject != "" {
		call += " " + subject
	}
	switch {
	case isOurs(err):
		return fmt.Errorf("%s: %w", call, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%s: %w", call, ErrLeaseNotFound)
	case e.life.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", call, ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w", call, context.Cause(ctx))
	}
	reason := reasonOf(err)
	switch codeOf(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%s: etcd %s: %w: %s", call, e.name, ErrDenied, reason)
	case codes.InvalidArgument:
		// A wrong password also has the code of an invalid argument.
		if errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrUserEmpty) {
			return fmt.Errorf("%s: etcd %s: %w: %s", call, e.name, ErrDenied, reason)
		}
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		u := &unavailableError{call: call, endpoints: e.name, reason: reason}
		if codeOf(err) != codes.Unavailable {
			u.reason = fmt.Sprintf("deadline exceeded after %s", e.timeout)
			if ctx.Err() != nil {
				u.reason, u.cause = "deadline exceeded", context.Cause(ctx)
			}
			if _, last, _ := e.health.trouble(); last != nil {
				u.reason += " (" + reasonOf(last) + ")"
			}
		}
		return u
	}
	return fmt.Errorf("%s: etcd %s: %s", call, e.name, reason)
}

func isOurs(err error) bool {
	for _, ours := range []error{ErrNotFound, ErrExists, ErrConflict, ErrClosed} {
		if errors.Is(err, ours) {
			return true
		}
	}
	return false
}

// unavailableError is an [ErrUnavailable]. When the caller's context ended, it
// is that context's error as well.
type unavailableError struct {
	call, endpoints, reason string
	cause                   error
}

func (u *unavailableError) Error() string {
	return u.call + ": etcd " + u.endpoints + ": " + u.reason
}

func (u *unavailableError) Is(target error) bool { return target == ErrUnavailable }

func (u *unavailableError) Unwrap() error { return u.cause }

// codeOf returns the gRPC code of an error in any of the forms that the etcd client uses.
func codeOf(err error) codes.Code {
	var etcdErr rpctypes.EtcdError
	switch {
	case errors.As(err, &etcdErr):
		return etcdErr.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// reasonOf shortens an error of gRPC to its innermost description.
func reasonOf(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	if _, inner, found := strings.Cut(text, "Error while dialing: "); found {
		text = strings.TrimSuffix(inner, `"`)
	}
	return strings.TrimPrefix(text, "etcdserver: ")
}

func fromEtcd(kv *mvccpb.KeyValue) KV {
	return KV{
		Key:         string(kv.Key),
		Value:       kv.Value,
		ModRevision: Revision(kv.ModRevision),
		Lease:       cluster.InstanceID(kv.Lease),
	}
}

// endsWatch returns the error that ends the stream of a watch response, or nil.
func endsWatch(resp clientv3.WatchResponse) error {
	if err := resp.Err(); err != nil {
		return err
	}
	if resp.Canceled {
		return errors.New("watch cancelled by the server")
	}
	return nil
}
