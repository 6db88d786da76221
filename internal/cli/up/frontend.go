package up

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/frontend"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/openai"
)

// url returns the address for clients: the frontend of the first node that has
// one; empty when none has.
func (u *localNodes) url(v client.View) string {
	nodes := slices.SortedFunc(slices.Values(v.Nodes), func(a, b cluster.Node) int { return human.CompareNodes(a.Name, b.Name) })
	trust := u.trust(v)
	for _, n := range nodes {
		if n.FrontendURL != "" && (trust == nil || trust(n.ID)) {
			return strings.TrimSuffix(n.FrontendURL, "/")
		}
	}
	return ""
}

// frontendTimeout bounds one question to a frontend.
const frontendTimeout = 500 * time.Millisecond

// barred says why a frontend that answers says nothing to this dynctl; empty if it does.
type barred string

const (
	needsKey   barred = "the frontend asks for an API key, which this dynctl does not have: put it into $" + session.FrontendKeyVariable
	needsTrust barred = "the frontend serves HTTPS, which this dynctl cannot use: " + frontend.DistrustFix
)

// listed asks a frontend for its models and says what is missing until it lists one.
func listed(ctx context.Context, s *session.Session, url, model string) (why string, _ barred) {
	ctx, cancel := context.WithTimeout(ctx, frontendTimeout)
	defer cancel()
	secure, err := s.FrontendTLS()
	if err != nil {
		return "", needsTrust
	}
	c, err := openai.New(url, s.FrontendKey(), secure)
	if err != nil {
		return "its address is no URL: " + url, ""
	}
	defer c.Close()
	models, err := c.Models(ctx)
	var said *openai.Error
	switch {
	case errors.As(err, &said) && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden):
		return "", needsKey
	case errors.Is(err, openai.ErrCertificate):
		return "", needsTrust
	case errors.As(err, &said):
		return fmt.Sprintf("for an answer at %s; so far status %d", url, said.Status), ""
	case errors.Is(err, openai.ErrProtocol):
		return "for a list of models at " + url, ""
	case err != nil:
		return "for an answer at " + url, ""
	case slices.ContainsFunc(models, func(m openai.Model) bool { return m.ID == model }):
		return "", ""
	}
	return "until it lists " + model, ""
}
