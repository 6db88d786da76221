package frontend

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
)

const requestIDHeader = "X-Request-Id"

// identified gives every request an id, the client's own if it sent one.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestIDHeader)
		if !validID(id) {
			id = newID("")
		}
		w.Header().Set(requestIDHeader, id)
		next.ServeHTTP(w, r)
	})
}

// workID is the id under which the cluster knows a request. Engines tell requests
// apart by it, so a client's own id gets an addition that makes it unique.
func workID(w http.ResponseWriter, r *http.Request) string {
	id := w.Header().Get(requestIDHeader)
	if id == r.Header.Get(requestIDHeader) {
		id += "-" + newID("")[:8]
	}
	return id
}

func validID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, c := range id {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

// newID returns a fresh id with a prefix such as "chatcmpl-".
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// response notices whether a handler has begun to answer.
type response struct {
	http.ResponseWriter
	begun bool
}

func (r *response) WriteHeader(status int) {
	r.begun = r.begun || status >= http.StatusOK // others come before the answer
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(b []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// recovered turns a panic of a handler into a 500 and a log line; the server goes
// on. An answer that has begun is cut off, so that it does not look complete.
func (f *Frontend) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &response{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			f.log.Error("request handler panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if out.begun {
				panic(http.ErrAbortHandler)
			}
			internalError("Internal server error.").write(out)
		}()
		next.ServeHTTP(out, r)
	})
}

// authorized asks for an API key, if there are any.
func (f *Frontend) authorized(next http.Handler) http.Handler {
	keys := apiKeys(f.cfg.APIKey)
	if len(keys) == 0 {
		return next
	}
	wanted := make([][sha256.Size]byte, len(keys))
	for i, key := range keys {
		wanted[i] = sha256.Sum256([]byte(key))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, known := sha256.Sum256([]byte(bearer(r))), 0
		for i := range wanted {
			known |= subtle.ConstantTimeCompare(got[:], wanted[i][:])
		}
		if known != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			invalid("", "Incorrect API key provided. Send it as 'Authorization: Bearer KEY'.").
				withCode("invalid_api_key").withStatus(http.StatusUnauthorized).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}
