package frontend

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/session"
)

// maxImage limits an image, in bytes; a frontend takes less by default.
const maxImage = 1 << 30

// Picture returns the URL of an image: that given, or one with the content of a file.
func Picture(s *session.Session, name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("no file given")
	case strings.HasPrefix(name, "https://"), strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "data:"):
		return name, nil
	}
	f, err := os.Open(s.Env.Path(name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	r := bufio.NewReader(io.LimitReader(f, maxImage+1))
	head, err := r.Peek(512) // as much as tells the format
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	kind := http.DetectContentType(head)
	if !strings.HasPrefix(kind, "image/") {
		return "", fmt.Errorf("%s is no image, but %s", name, kind)
	}
	b, err := io.ReadAll(r)
	switch {
	case err != nil:
		return "", err
	case len(b) > maxImage:
		return "", fmt.Errorf("%s is longer than %d bytes", name, maxImage)
	}
	return "data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(b), nil
}
