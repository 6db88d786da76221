package attach

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// Root is where the API begins, on the status server of a node.
const Root = "/v1/services"

const (
	maxSpec  = 64 << 10 // bytes of a request to attach
	maxEvent = 1 << 20  // bytes of an event
)

// Token returns the token that admits to the API. It follows from the cluster's key, but the
// key does not follow from it. Whoever has it can answer in the place of workers.
func Token(key handshake.Key) string { return key.Token(cluster.AttachPurpose) }

// Register adds the API to mux, for callers with the token:
//
//	POST   /v1/services                      attach a cluster.Service, or renew it
//	GET    /v1/services                      list
//	PUT    /v1/services/{id}                 renew
//	DELETE /v1/services/{id}                 detach
//	POST   /v1/services/{id}/events/{topic}  publish an event, any JSON
func (s *Services) Register(mux *http.ServeMux, token string) {
	for pattern, h := range map[string]http.HandlerFunc{
		"POST " + Root:                          s.serveAttach,
		"GET " + Root:                           s.serveList,
		"PUT " + Root + "/{id}":                 s.serveRenew,
		"DELETE " + Root + "/{id}":              s.serveDetach,
		"POST " + Root + "/{id}/events/{topic}": s.serveEvent,
	} {
		mux.Handle(pattern, admit(token, h))
	}
}

// admit lets in who shows the token. It can be read on the way, so it counts only over TLS
// or from this machine.
func admit(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !requestplane.FromLoopback(r) {
			refuse(w, http.StatusForbidden, "services are attached from the node's own machine, or over TLS")
			return
		}
		if !requestplane.ShowsToken(r, token) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "no valid token: dynctl credentials --attach prints it")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Services) serveAttach(w http.ResponseWriter, r *http.Request) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSpec))
	d.DisallowUnknownFields()
	var spec cluster.Service
	if err := d.Decode(&spec); err != nil {
		refuse(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	st, err := s.Attach(spec)
	reply(w, st, err)
}

func (s *Services) serveList(w http.ResponseWriter, _ *http.Request) { reply(w, s.List(), nil) }

func (s *Services) serveRenew(w http.ResponseWriter, r *http.Request) {
	st, err := s.Renew(r.PathValue("id"))
	reply(w, st, err)
}

func (s *Services) serveDetach(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), drainLimit)
	defer cancel()
	reply(w, struct{}{}, s.Detach(ctx, r.PathValue("id")))
}

func (s *Services) serveEvent(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
	if err != nil {
		refuse(w, http.StatusBadRequest, "body: "+err.Error())
		return
	}
	v, err := event(text)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	reply(w, struct{}{}, s.Publish(r.Context(), r.PathValue("id"), r.PathValue("topic"), v))
}

func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case err == nil:
		write(w, http.StatusOK, v)
	case errors.Is(err, ErrUnknown):
		refuse(w, http.StatusNotFound, err.Error())
	case errors.Is(err, ErrTaken):
		refuse(w, http.StatusConflict, err.Error())
	case errors.Is(err, ErrFull), errors.Is(err, errOver), errors.Is(err, context.DeadlineExceeded):
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		refuse(w, http.StatusBadRequest, err.Error())
	}
}

func refuse(w http.ResponseWriter, status int, why string) {
	write(w, status, map[string]any{"error": map[string]string{"message": why}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has left
}

// event decodes an event, with whole numbers as integers.
func event(text []byte) (any, error) {
	b, err := protocol.FromJSON(text)
	if err != nil {
		return nil, err
	}
	var v any
	err = protocol.Unmarshal(b, &v)
	return v, err
}
