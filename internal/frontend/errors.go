package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// apiError is an error in the form that OpenAI's clients expect: an HTTP status and an
// envelope with message, type, param and code.
type apiError struct {
	status     int
	Message    string        `json:"message"`
	Type       string        `json:"type"`
	Param      *string       `json:"param"`
	Code       *string       `json:"code"`
	retryAfter time.Duration // header Retry-After, if positive
	metric     string        // error_type label
	refusal    string        // why there was no room for the request, as a label; else empty
}

func (e *apiError) Error() string { return e.Message }

func (e *apiError) withStatus(status int) *apiError {
	e.status = status
	return e
}

func (e *apiError) withCode(c string) *apiError {
	e.Code = &c
	return e
}

// invalid returns a 400 that names the faulty field; param may be empty.
func invalid(param, format string, args ...any) *apiError {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = shortened(s)
		}
	}
	param = shortened(param)
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...), metric: metrics.ErrorValidation}
	if param != "" {
		e.Param = &param
	}
	return e
}

// maxEcho bounds how much of a request an error message repeats, in bytes.
const maxEcho = 1 << 10

func shortened(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return strings.ToValidUTF8(s[:maxEcho-3], "") + "..."
}

func missing(param string) *apiError {
	return invalid(param, "Missing required parameter: '%s'.", param).withCode("missing_required_parameter")
}

func wrongType(param, want string) *apiError {
	return invalid(param, "Invalid type for '%s': expected %s.", param, want).withCode("invalid_type")
}

func wrongValue(param, format string, args ...any) *apiError {
	return invalid(param, "Invalid value for '%s': "+format+".", append([]any{param}, args...)...).withCode("invalid_value")
}

func tooLong(param, format string, args ...any) *apiError {
	return invalid(param, format, args...).withCode("context_length_exceeded")
}

func unsupported(param string) *apiError {
	return invalid(param, "Unsupported parameter: '%s' is not supported by this server.", param).withCode("unsupported_parameter")
}

func unavailable(message string, retry time.Duration) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, Type: "server_error", Message: message, retryAfter: retry, metric: metrics.ErrorUnavailable}
}

// retryLater is the Retry-After of errors that may end at any moment.
const retryLater = time.Second

// notPrefilled answers a request that no prefill worker could take, where decode workers
// must not prefill in their place.
func notPrefilled(why string) *apiError {
	return unavailable("No prefill worker could compute this prompt ("+why+"), and decode workers must not (disagg.enforce).", retryLater).withCode("not_prefilled")
}

// shuttingDown answers requests that arrive or are in flight when the frontend stops.
func shuttingDown() *apiError { return unavailable("This server is shutting down.", 5*time.Second) }

const allBusy = "All workers are busy, please retry later."

// overloaded answers a request for which there is no room now. why is
// [metrics.RefusedBusy] or another reason.
func overloaded(why, message string) *apiError {
	e := &apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Message: message, retryAfter: retryLater, metric: metrics.ErrorOverload, refusal: why}
	return e.withCode("overloaded")
}

// pastDeadline answers a request that waited too long for its client. Nothing of it was
// computed.
func pastDeadline() *apiError {
	e := overloaded(metrics.RefusedDeadline, "The request's deadline passed while it waited for a worker; nothing was computed.").withCode("deadline_exceeded")
	e.status, e.Type = http.StatusGatewayTimeout, "server_error"
	return e
}

func internalError(message string) *apiError {
	return &apiError{status: http.StatusInternalServerError, Type: "server_error", Message: message, metric: metrics.ErrorInternal}
}

func timedOut() *apiError {
	return &apiError{status: http.StatusGatewayTimeout, Type: "server_error", Message: "The request took longer than this server allows.", metric: metrics.ErrorResponseTimeout}
}

// statusClientClosed is nginx's status for a client that left. It appears in logs and
// metrics only.
const statusClientClosed = 499

func clientClosed() *apiError {
	return &apiError{status: statusClientClosed, Type: "invalid_request_error", Message: "The client closed the request.", metric: metrics.ErrorCancelled}
}

// slowReader ends a stream that its client has not read for a time.
func slowReader(waited time.Duration) *apiError {
	e := &apiError{status: http.StatusRequestTimeout, Type: "invalid_request_error", metric: metrics.ErrorCancelled}
	e.Message = fmt.Sprintf("The client did not read the stream for %s.", waited)
	return e.withCode("slow_reader")
}

// asAPIError turns any error of a request into the one that the client sees. It hides
// addresses and names of the cluster; the log has them, under the request's id.
func asAPIError(err error) *apiError {
	var api *apiError
	var remote *requestplane.RemoteError
	isRemote := errors.As(err, &remote)
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, errRequestTimeout), errors.Is(err, requestplane.ErrTimeout):
		return timedOut()
	case errors.Is(err, errDeadline):
		return pastDeadline()
	case errors.Is(err, errStopping):
		return shuttingDown()
	case errors.Is(err, context.Canceled):
		return clientClosed()
	case errors.Is(err, requestplane.ErrOverloaded):
		return overloaded(metrics.RefusedWorkersFull, allBusy)
	case errors.Is(err, errNamedBusy):
		return overloaded(metrics.RefusedNamedBusy, "The worker that the request names is busy, please retry later.")
	case errors.Is(err, errSessionBusy):
		return overloaded(metrics.RefusedSessionBusy, "The worker of this session is busy, please retry later.")
	case errors.Is(err, router.ErrAllBusy):
		return overloaded(metrics.RefusedBusy, allBusy)
	case errors.Is(err, errLost):
		return unavailable("The workers serving this request were lost.", retryLater)
	case errors.Is(err, router.ErrNoWorkers), errors.Is(err, router.ErrAllExcluded):
		return unavailable("No worker is ready to serve this model.", retryLater)
	case isRemote && remote.Kind == requestplane.KindNotPrefilled:
		return notPrefilled(remote.Message)
	case isRemote && remote.Kind == requestplane.KindInvalidArgument:
		return invalid("", "%s", remote.Message)
	}
	return internalError("The engine failed.")
}

// write sends the error as the whole response.
func (e *apiError) write(w http.ResponseWriter) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.retryAfter+time.Second-1)/time.Second)))
	}
	writeBody(w, e.status, e.body())
}

// body returns the JSON of the envelope, with a line break.
func (e *apiError) body() []byte {
	b, err := marshal(struct {
		Error *apiError `json:"error"`
	}{e})
	if err != nil { // strings always encode
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}` + "\n")
	}
	return b
}

// marshal encodes v with a line break at its end and without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return buf.Bytes(), err
}

// writeJSON sends v as the whole response.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := marshal(v)
	if err != nil {
		internalError("The answer could not be encoded.").write(w)
		return
	}
	writeBody(w, status, b)
}

// writeBody sends a JSON response. An error means that the client left or does not read.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
