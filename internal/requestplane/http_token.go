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
	if !wire.secure && (s.cfg.TLS != nil || !onLoopback(r.RemoteAddr)) {
		return refuse(http.StatusForbidden, "a token is accepted only over TLS, or from this machine if the request plane has no TLS (request_plane.tls)")
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return refuse(http.StatusUnauthorized, "no valid token of this cluster (dynctl credentials token)")
	}
	wire.admit()
	return true
}

func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && net.ParseIP(host).IsLoopback()
}
