package requestplane

import (
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"github.com/dynctl/dynctl/internal/handshake"
)

// HTTPToken returns the token that admits a caller without the handshake, such as curl, to
// servers of the http request plane: "Authorization: Bearer" with it. It follows from the
// key, but the key does not follow from it. Whoever has it can call all endpoints.
func HTTPToken(key handshake.Key) string { return key.Token("http request plane") }

// authorized reports whether a request may be answered. If not, it has answered.
//
// A token can be read on the way, so it counts only over TLS, or from this machine to a
// server without TLS.
func (s *HTTPServer) authorized(wire *httpWire, w http.ResponseWriter, r *http.Request) bool {
	if wire.proved {
		return true
	}
	refuse := func(status int, why string) bool {
		s.refused.Warn(s.log, "request refused", "peer", r.RemoteAddr, "err", why)
		w.Header().Set("Connection", "close")
		http.Error(w, why, status)
		return false
	}
	if !wire.secure && (s.cfg.TLS != nil || !FromLoopback(r)) {
		return refuse(http.StatusForbidden, "a token is accepted only over TLS, or from this machine if the request plane has no TLS (request_plane.tls)")
	}
	if !ShowsToken(r, s.token) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return refuse(http.StatusUnauthorized, "no valid token of this cluster (dynctl credentials token)")
	}
	wire.admit()
	return true
}

// ShowsToken reports whether a request has the token: "Authorization: Bearer" with it.
func ShowsToken(r *http.Request, token string) bool {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1
}

// FromLoopback reports whether a request comes from this machine, where nobody reads it on
// the way.
func FromLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return err == nil && net.ParseIP(host).IsLoopback()
}
