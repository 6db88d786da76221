package chat

import "errors"

var (
	// ErrFile is returned by Load, wrapped with the name of the file, when a required
	// file is missing or malformed.
	ErrFile = errors.New("unusable model file")
	// ErrNoTemplate is returned by RenderChat when the model has no chat
	// template that fits the request.
	ErrNoTemplate = errors.New("no chat template")
	// ErrMessages is returned by RenderChat when messages, tools or template arguments
	// are malformed, or have parts that the template does not support.
	ErrMessages = errors.New("invalid conversation")
)
