package prepare

import (
	"errors"
	"fmt"
)

// Errors of this package match one of these.
var (
	// ErrConfig is returned for files of a checkpoint that are wrong.
	ErrConfig = errors.New("invalid image processor")
	// ErrUnsupported is returned for processors and settings that are not implemented.
	ErrUnsupported = errors.New("unsupported image processor")
	// ErrPicture is returned for pictures that the processor cannot take.
	ErrPicture = errors.New("unsuitable picture")
)

// FieldError is an error in a file of the checkpoint. It matches ErrConfig or
// ErrUnsupported.
type FieldError struct {
	File  string // such as "preprocessor_config.json"
	Field string // empty if the file as a whole is wrong
	Kind  error
	Text  string // what is wrong
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("read %s: %v: %s", e.File, e.Kind, e.Text)
	}
	return fmt.Sprintf("read %s: %v: %s: %s", e.File, e.Kind, e.Field, e.Text)
}

// Unwrap returns the kind.
func (e *FieldError) Unwrap() error { return e.Kind }
