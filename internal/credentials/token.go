package credentials

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Token holds all that a machine needs to join a cluster, as one word for an operator to
// copy. It contains the secret: anyone with the token belongs to the cluster.
type Token struct {
	Cluster   string   `json:"c"`
	Namespace string   `json:"n"`
	Etcd      []string `json:"e"` // in the form of etcd.endpoints, or file:///DIR
	NATS      string   `json:"q"` // in the form of nats.url; may be empty
	Secret    Secret   `json:"-"`
}

const (
	tokenVersion  = "dynctl1:"
	tokenSum      = 4 // bytes of SHA-256, against copying errors
	maxToken      = 8 << 10
	maxTokenText  = 1 << 10 // of each part
	maxTokenHosts = 32
)

type tokenBody struct {
	Token
	Secret string `json:"s"`
}

// Encode returns the token as one word of letters, digits, - and _ after its version.
func (t Token) Encode() (string, error) {
	if err := t.check(); err != nil {
		return "", err
	}
	body, err := json.Marshal(tokenBody{t, t.Secret.Encode()})
	if err != nil {
		return "", fmt.Errorf("encode a join token: %w", err)
	}
	text := tokenVersion + base64.RawURLEncoding.EncodeToString(append(body, sumOf(body)...))
	if len(text) > maxToken {
		return "", fmt.Errorf("encode a join token: %d bytes, limit %d", len(text), maxToken)
	}
	return text, nil
}

// IsToken reports whether a text looks like a token, of any version.
func IsToken(text string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "dynctl")
	digits := strings.TrimLeft(rest, "0123456789")
	return ok && len(digits) < len(rest) && strings.HasPrefix(digits, ":")
}

// ParseToken reads the text that Encode returned. Errors do not repeat the text.
func ParseToken(text string) (Token, error) {
	var none Token
	text = strings.TrimSpace(text)
	encoded, ok := strings.CutPrefix(text, tokenVersion)
	switch {
	case !ok && IsToken(text):
		return none, fmt.Errorf("join token: its version is not %s", strings.TrimSuffix(tokenVersion, ":"))
	case !ok:
		return none, fmt.Errorf("join token: it does not begin with %s", tokenVersion)
	case len(text) > maxToken:
		return none, fmt.Errorf("join token: longer than %d bytes", maxToken)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(raw) < tokenSum {
		return none, errors.New("join token: a part of it is missing or was changed")
	}
	body, sum := raw[:len(raw)-tokenSum], raw[len(raw)-tokenSum:]
	if !bytes.Equal(sum, sumOf(body)) {
		return none, errors.New("join token: a part of it is missing or was changed")
	}
	var b tokenBody
	if err := json.Unmarshal(body, &b); err != nil {
		return none, errors.New("join token: not readable")
	}
	t := b.Token
	if t.Secret, err = Decode(b.Secret); err != nil {
		return none, fmt.Errorf("join token: %w", err)
	}
	if err := t.check(); err != nil {
		return none, err
	}
	return t, nil
}

// check rejects contents that no valid token has. The settings validate names and
// addresses later.
func (t Token) check() error {
	if t.Secret.IsZero() {
		return errors.New("join token: no secret")
	}
	if len(t.Etcd) == 0 || len(t.Etcd) > maxTokenHosts {
		return fmt.Errorf("join token: %d addresses of etcd, not 1 to %d", len(t.Etcd), maxTokenHosts)
	}
	if err := cluster.ValidateNamespace(t.Namespace); err != nil {
		return fmt.Errorf("join token: %w", err)
	}
	for _, s := range append([]string{t.Cluster, t.NATS}, t.Etcd...) {
		if len(s) > maxTokenText || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return errors.New("join token: invalid name or address")
		}
	}
	return nil
}

func sumOf(body []byte) []byte {
	sum := sha256.Sum256(append([]byte(tokenVersion), body...))
	return sum[:tokenSum]
}

// ReadToken returns the token that an argument denotes: the argument itself, the text on
// stdin for "-", or the content of the file of that name.
func ReadToken(arg string, stdin io.Reader) (string, error) {
	if IsToken(arg) {
		return arg, nil
	}
	r := stdin
	if arg != "-" {
		f, err := os.Open(arg)
		if errors.Is(err, fs.ErrNotExist) {
			// The error omits the text, which may be a token without its beginning.
			return "", fmt.Errorf("join token: it does not begin with %s, and there is no file of that name", tokenVersion)
		}
		if err != nil {
			var path *fs.PathError
			if errors.As(err, &path) {
				err = path.Err // without the file name
			}
			return "", fmt.Errorf("read the join token: %w", err)
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("read the join token: %w", err)
	}
	return string(text), nil
}
