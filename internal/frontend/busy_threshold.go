package frontend

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/dynctl/dynctl/internal/router"
)

// BusyChange changes the limits above which workers are busy; nil leaves one as it is.
type BusyChange struct {
	KVShare       *float64
	PrefillTokens *int64
	PrefillSteps  *float64
}

// busyThresholds is the answer about one model, in Dynamo's form; 0 means no limit.
type busyThresholds struct {
	Model         string  `json:"model"`
	KVShare       float64 `json:"active_decode_blocks_threshold"`
	PrefillTokens int64   `json:"active_prefill_tokens_threshold"`
	PrefillSteps  float64 `json:"active_prefill_tokens_threshold_frac"`
}

func thresholdsOf(model string, l router.BusyLimits) busyThresholds {
	return busyThresholds{model, l.KVShare, int64(l.PrefillTokens), l.PrefillSteps}
}

// getBusyThresholds lists the limits of all models, which are the same: they are settings
// of the namespace.
func (f *Frontend) getBusyThresholds(w http.ResponseWriter, _ *http.Request) {
	out := struct {
		Thresholds []busyThresholds `json:"thresholds"`
	}{[]busyThresholds{}}
	for _, m := range f.registry.list() {
		out.Thresholds = append(out.Thresholds, thresholdsOf(m.name, f.cfg.Settings().Busy))
	}
	writeJSON(w, http.StatusOK, out)
}

// Bounds of a request that changes thresholds.
const (
	maxThresholdBody = 64 << 10
	thresholdTimeout = 5 * time.Second // to read the request, and to store the settings
)

// setBusyThresholds is Dynamo's route: it changes the limits that the request has, for all
// frontends, and answers with all three. A request with a model alone only asks.
func (f *Frontend) setBusyThresholds(w http.ResponseWriter, r *http.Request) {
	var model string
	var c BusyChange
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(thresholdTimeout)) // the server takes it back
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxThresholdBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		invalid("", "The request body is larger than %d bytes.", maxThresholdBody).withStatus(http.StatusRequestEntityTooLarge).write(w)
		return
	} else if err != nil {
		invalid("", "The request body could not be read: %v.", err).write(w)
		return
	}
	bad := fields{
		"model":                                text(&model),
		"active_decode_blocks_threshold":       number(&c.KVShare, 0, 1),
		"active_prefill_tokens_threshold":      integer(&c.PrefillTokens, 0, 100_000_000),
		"active_prefill_tokens_threshold_frac": number(&c.PrefillSteps, 0, 1000),
	}.read(body)
	if bad == nil && model == "" {
		bad = missing("model")
	}
	if bad == nil {
		_, bad = f.model(model)
	}
	if bad != nil {
		bad.write(w)
		return
	}
	limits := f.cfg.Settings().Busy
	if c != (BusyChange{}) {
		ctx, cancel := context.WithTimeout(r.Context(), thresholdTimeout)
		defer cancel()
		if err := f.cfg.SetBusy(ctx, c); err != nil {
			f.log.Warn("thresholds not changed", "error", err)
			unavailable("The settings could not be stored, please retry later.", retryLater).write(w)
			return
		}
		c.apply(&limits)
	}
	writeJSON(w, http.StatusOK, thresholdsOf(model, limits))
}

// apply changes limits as the settings will be.
func (c BusyChange) apply(l *router.BusyLimits) {
	if c.KVShare != nil {
		l.KVShare = *c.KVShare
	}
	if c.PrefillTokens != nil {
		l.PrefillTokens = int(*c.PrefillTokens)
	}
	if c.PrefillSteps != nil {
		l.PrefillSteps = *c.PrefillSteps
	}
}
