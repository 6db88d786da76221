package openai

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Errors of this package.
var (
	// ErrUnreachable is returned when no HTTP server answers.
	ErrUnreachable = errors.New("frontend not reachable")
	// ErrCertificate is returned when a frontend answers HTTPS with a certificate that is not
	// trusted, or does not accept the client's.
	ErrCertificate = errors.New("no trust between this machine and the frontend")
	// ErrBroken is returned when a stream ends before its answer does. The partial answer
	// is returned with it.
	ErrBroken = errors.New("the answer broke off")
	// ErrProtocol is returned when the server is not an OpenAI-compatible frontend.
	ErrProtocol = errors.New("not the answer of an OpenAI-compatible frontend")
)

// Error is an error that a frontend reports.
type Error struct {
	Status  int // HTTP status; 0 for an error within a stream
	Message string
	Type    string
	Code    string
	Param   string // the field at fault, if any
	// RetryAfter is the delay before a retry; 0 when the frontend names none.
	RetryAfter time.Duration
}

// Error returns the frontend's message, with the status if there is one.
func (e *Error) Error() string {
	text := strings.TrimRight(e.Message, ". \n")
	switch {
	case e.Status == 0:
		return text
	case text == "":
		return fmt.Sprintf("status %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("%s (status %d)", text, e.Status)
}

// Temporary reports whether the same request may succeed a little later.
func (e *Error) Temporary() bool {
	return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests
}

// envelope is the JSON form of an error. Code may be a string or a number.
type envelope struct {
	Error *struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Param   *string         `json:"param"`
	} `json:"error"`
}

func (v envelope) err(status int) *Error {
	e := &Error{Status: status, Message: v.Error.Message, Type: v.Error.Type}
	if code := strings.Trim(string(v.Error.Code), `"`); code != "null" {
		e.Code = code
	}
	if v.Error.Param != nil {
		e.Param = *v.Error.Param
	}
	return e
}

// maxError limits how much of an error body is read, in bytes.
const maxError = 64 << 10

func readError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // a partial body is good enough
	e := &Error{Status: resp.StatusCode}
	var v envelope
	if json.Unmarshal(body, &v) == nil && v.Error != nil {
		e = v.err(resp.StatusCode)
	}
	e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), resp.Header.Get("Date"))
	return e
}

// retryAfter reads a Retry-After header: seconds, or a time. A time is compared with the
// server's own clock, from its Date header, if there is one.
func retryAfter(text, date string) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return time.Duration(min(max(n, 0), 24*3600)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}

// bare removes the method and URL that net/http puts around an error.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// distrust reports whether a connection failed because of the certificate of one side.
func distrust(err error) bool {
	var ours *tls.CertificateVerificationError
	var theirs *net.OpError // with an alert, whose type crypto/tls does not export
	return errors.As(err, &ours) || errors.As(err, &theirs) && theirs.Op == "remote error"
}
