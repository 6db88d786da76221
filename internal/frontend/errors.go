package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// apiError is an error as OpenAI's clients expect it: an HTTP status and an
// envelope with message, type, param and code.
type apiError struct {
	status     int
	Message    string        `json:"message"`
	Type       string        `json:"type"`
	Param      *string       `json:"param"`
	Code       *string       `json:"code"`
	retryAfter time.Duration // header Retry-After, if positive
	metric     string        // error_type label
}

func (e *apiError) Error() string { return e.Message }

func (e *apiError) withParam(p string) *apiError {
	e.Param = &p
	return e
}

func (e *apiError) withCode(c string) *apiError {
	e.Code = &c
	return e
}

// invalid is a 400 that names the field at fault; param may be empty.
func invalid(param, format string, args ...any) *apiError {
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...), metric: metrics.ErrorValidation}
	if param != "" {
		e = e.withParam(param)
	}
	return e
}

func unsupported(param string) *apiError {
	return invalid(param, "Unsupported parameter: '%s' is not supported by this server.", param).withCode("unsupported_parameter")
}

func unavailable(message string, retry time.Duration) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, Type: "server_error", Message: message, retryAfter: retry, metric: metrics.ErrorUnavailable}
}

func overloaded(message string) *apiError {
	return (&apiError{status: http.StatusTooManyRequests, Type: "rate_limit_error", Message: message, retryAfter: time.Second, metric: metrics.ErrorOverload}).withCode("overloaded")
}

func internalError(message string) *apiError {
	return &apiError{status: http.StatusInternalServerError, Type: "server_error", Message: message, metric: metrics.ErrorInternal}
}

// statusClientClosed is nginx's word for a client that left; nobody reads it.
const statusClientClosed = 499

// asAPIError turns any error of the pipeline into what the client sees.
func asAPIError(err error) *apiError {
	var api *apiError
	var remote *requestplane.RemoteError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, errRequestTimeout):
		return &apiError{status: http.StatusGatewayTimeout, Type: "server_error", Message: err.Error(), metric: metrics.ErrorResponseTimeout}
	case errors.Is(err, context.Canceled):
		return &apiError{status: statusClientClosed, Type: "invalid_request_error", Message: "The client closed the request.", metric: metrics.ErrorCancelled}
	case errors.Is(err, router.ErrNoWorkers):
		return unavailable("No worker is ready to serve this model.", time.Second)
	case errors.Is(err, requestplane.ErrOverloaded):
		return overloaded("All workers are busy, please retry later.")
	case errors.As(err, &remote) && remote.Kind == requestplane.KindInvalidArgument:
		return invalid("", "%s", remote.Message)
	case errors.Is(err, router.ErrAllExcluded), errors.Is(err, requestplane.ErrDisconnected), errors.Is(err, requestplane.ErrCannotConnect):
		return unavailable("The workers serving this request were lost: "+err.Error(), time.Second)
	}
	return internalError("The engine failed: " + err.Error())
}

// write sends the error as the whole response.
func (e *apiError) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.retryAfter+time.Second-1)/time.Second)))
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(e.body()) // the client may have left
}

func (e *apiError) body() []byte {
	b, err := json.Marshal(struct {
		Error *apiError `json:"error"`
	}{e})
	if err != nil {
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return append(b, '\n')
}
