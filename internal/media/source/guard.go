package source

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Errors of Get.
var (
	// ErrRefused means that content cannot be had from where the request says.
	ErrRefused = errors.New("the content cannot be loaded")
	// ErrForm means that a URL has no form that is known. Its text may be shown.
	ErrForm = errors.New("not a URL that is supported")
	// ErrTooLarge means that content is larger than allowed.
	ErrTooLarge = errors.New("the content is too large")
)

// refusal hides its reason.
type refusal struct{ reason error }

func (r refusal) Error() string        { return ErrRefused.Error() }
func (r refusal) Is(target error) bool { return target == ErrRefused }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// Reason returns why content was refused, for logs; err itself if it hides nothing.
func Reason(err error) error {
	var r refusal
	if errors.As(err, &r) {
		return r.reason
	}
	return err
}

// Defaults.
const (
	DefaultMaxBytes = 50 << 20
	DefaultTimeout  = 30 * time.Second
)

// Config says what is allowed.
type Config struct {
	// Directory is where files of this machine may lie; empty: none may be read.
	Directory string
	// OnlyEmbeddings lets only files of embeddings be read there.
	OnlyEmbeddings bool
	// MaxBytes bounds the content of one URL.
	MaxBytes int64
	// Timeout bounds the loading of one.
	Timeout time.Duration
	// Private lets web servers have addresses that are not public, and be reached without TLS.
	Private bool
}

// Guard loads content within what is allowed.
type Guard struct {
	cfg  Config
	root *os.Root // nil: no files
	dir  string   // its absolute path, links resolved
	web  *http.Client
}

// New makes a guard. It fails if the directory cannot be opened.
func New(cfg Config) (*Guard, error) {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	g := &Guard{cfg: cfg}
	g.web = g.client()
	if cfg.Directory == "" {
		return g, nil
	}
	abs, err := filepath.Abs(cfg.Directory)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err == nil {
		g.dir = abs
		g.root, err = os.OpenRoot(abs)
	}
	if err != nil {
		return nil, fmt.Errorf("directory of local media: %w", err)
	}
	return g, nil
}

// Close releases the directory and idle connections.
func (g *Guard) Close() error {
	g.web.CloseIdleConnections()
	if g.root == nil {
		return nil
	}
	return g.root.Close()
}

// MaxBytes returns the largest content that is loaded.
func (g *Guard) MaxBytes() int64 { return g.cfg.MaxBytes }

// Content is what was loaded.
type Content struct {
	Data []byte
	// Embeddings says that the name of the content is that of a file of embeddings.
	Embeddings bool
}

// embeddingsExtensions are those of files of embeddings.
var embeddingsExtensions = []string{".pt", ".pth", ".bin", ".safetensors"}

func hasEmbeddings(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	for _, e := range embeddingsExtensions {
		if ext == e {
			return true
		}
	}
	return false
}

// Get loads the content of a URL: data:, https: (http: as well, where private servers are
// allowed), file:, or the absolute path of a file.
func (g *Guard) Get(ctx context.Context, raw string) (Content, error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	if rest, ok := cutScheme(raw, "data:"); ok {
		data, err := g.inline(rest)
		return Content{Data: data}, err
	}
	if strings.HasPrefix(raw, "/") {
		data, err := g.file(raw)
		return Content{data, hasEmbeddings(raw)}, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return Content{}, ErrForm
	}
	var data []byte
	switch strings.ToLower(u.Scheme) {
	case "file":
		if u.Host != "" && u.Host != "localhost" {
			return Content{}, fmt.Errorf("%w: a file of another host", ErrForm)
		}
		data, err = g.file(u.Path)
	case "https":
		data, err = g.fetch(ctx, u)
	case "http":
		if !g.cfg.Private {
			return Content{}, fmt.Errorf("%w: https is needed, not http", ErrForm)
		}
		data, err = g.fetch(ctx, u)
	default:
		return Content{}, fmt.Errorf("%w: use data:, https:, or a file that the operator allows", ErrForm)
	}
	return Content{data, hasEmbeddings(u.Path)}, err
}

func cutScheme(raw, scheme string) (rest string, ok bool) {
	if len(raw) < len(scheme) || !strings.EqualFold(raw[:len(scheme)], scheme) {
		return "", false
	}
	return raw[len(scheme):], true
}

// inline decodes a data URL, whose content must be in base64.
func (g *Guard) inline(rest string) ([]byte, error) {
	meta, text, ok := strings.Cut(rest, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(meta), ";base64") {
		return nil, fmt.Errorf("%w: a data URL needs ';base64,' before its content", ErrForm)
	}
	// Clients leave the padding out, and some escape it.
	text = strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(text, "%3D"), "%3D"), "=")
	if int64(base64.RawStdEncoding.DecodedLen(len(text))) > g.cfg.MaxBytes {
		return nil, g.tooLarge()
	}
	data, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: the content of the data URL is not base64", ErrForm)
	}
	return data, nil
}

func (g *Guard) tooLarge() error {
	return fmt.Errorf("%w: at most %d bytes are allowed", ErrTooLarge, g.cfg.MaxBytes)
}
