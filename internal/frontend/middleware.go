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

// identified gives every request an id. It keeps the client's id if there is one.
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

// workID returns the id under which the cluster knows a request. Engines tell requests
// apart by it, so a client's own id gets a suffix that makes it unique.
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

// response records whether a handler has begun to answer.
type response struct {
	http.ResponseWriter
	begun bool
}

func (r *response) WriteHeader(status int) {
	r.begun = r.begun || status >= http.StatusOK // informational responses come before the answer
	r.ResponseWriter.WriteHeader(status)
}

func (r *response) Write(b []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *response) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// recovered turns a panic of a handler into a 500 and a log line; the server continues.
// An answer that has begun is cut off, so that it does not look complete.
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

// HasKey reports whether a request bears one of the API keys in a setting. It compares in
// constant time.
func HasKey(r *http.Request, setting string) bool {
	got, known := sha256.Sum256([]byte(bearer(r))), 0
	for _, key := range apiKeys(setting) {
		want := sha256.Sum256([]byte(key))
		known |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return known == 1
}

// Insider reports whether a request may see names, addresses and figures beside a
// server's state. If there is an API key, the request must bear it; otherwise it must
// come over loopback, or with a client certificate that the server has verified.
func Insider(r *http.Request, key string) bool {
	if key != "" {
		return HasKey(r, key)
	}
	return overLoopback(r) || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}

// Insiders passes only requests of insiders to next, see [Insider].
func Insiders(key string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case Insider(r, key):
			next.ServeHTTP(w, r)
		case key != "":
			refuseKey(w)
		default:
			invalid("", "Other hosts may use this only with an API key (frontend.api_key).").
				withCode("api_key_required").withStatus(http.StatusForbidden).write(w)
		}
	})
}

func refuseKey(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	invalid("", "Incorrect API key provided. Send it as 'Authorization: Bearer KEY'.").
		withCode("invalid_api_key").withStatus(http.StatusUnauthorized).write(w)
}

// authorized requires an API key, if any is set.
func (f *Frontend) authorized(next http.Handler) http.Handler {
	if f.cfg.APIKey == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !HasKey(r, f.cfg.APIKey) {
			refuseKey(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}
