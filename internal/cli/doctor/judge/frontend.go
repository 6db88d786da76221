package judge

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/openai"
)

// refusal is the finding about an error of a frontend.
func refusal(err error) Finding {
	var said *openai.Error
	switch {
	case errors.As(err, &said) && (said.Status == http.StatusUnauthorized || said.Status == http.StatusForbidden):
		return poor("export DYNAMOD_FRONTEND_API_KEY=...   the key that the frontend was started with", "asks for an API key: %v", err)
	case errors.As(err, &said) && said.Temporary():
		return Bad("dynctl ps", "%v", err)
	case errors.Is(err, openai.ErrCertificate):
		return poor("dynctl config set frontend.ca_file FILE, and frontend.cert_file and key_file where it asks for a certificate", "%v", err)
	case errors.Is(err, openai.ErrUnreachable):
		return Bad("dynctl logs, and dynctl ps --nodes", "%v", err)
	}
	return Bad("dynctl logs", "%v", err)
}

// NoAnswer is the finding about an answer that did not come.
func NoAnswer(err error) Finding {
	if errors.Is(err, context.DeadlineExceeded) {
		return Bad("dynctl top, or --timeout 1m", "no answer in time")
	}
	return refusal(err)
}

// Health judges what a frontend says about itself.
func Health(status string, err error) Finding {
	if err != nil {
		return refusal(err)
	}
	return good("says it is %s", human.OrDash(status)).With("status", status)
}

// Models compares what a frontend lists with the declared model; empty if none is.
func Models(models []openai.Model, err error, model string) Finding {
	if err != nil {
		return refusal(err)
	}
	ids := []string{}
	for _, m := range models {
		ids = append(ids, m.ID)
	}
	f := good("lists %s", human.Names(ids))
	switch {
	case model == "" && len(ids) == 0:
		f = Skipped("lists no model, and none is declared")
	case model != "" && !slices.Contains(ids, model):
		f = Bad("dynctl ps", "does not list %s; it lists %s", model, human.Names(ids))
	}
	return f.With("models", ids)
}

// Answer judges an answer of two tokens.
func Answer(a openai.Answer, err error) Finding {
	if err != nil {
		return NoAnswer(err)
	}
	f := good("answers")
	if a.TTFT > 0 {
		f = good("answers, ttft %s", human.Millis(a.TTFT)).With("ttft_ms", human.Milliseconds(a.TTFT))
	}
	return f.With("total_ms", human.Milliseconds(a.Took))
}
