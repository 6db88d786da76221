package chat

import "errors"

var (
	// ErrFile is returned by Load, wrapped with the name of the file, when a
	// file is missing that must be there, or has the wrong shape.
	ErrFile = errors.New("unusable model file")
	// ErrNoTemplate is returned by RenderChat when the model has no chat
	// template that fits the request.
	ErrNoTemplate = errors.New("no chat template")
	// ErrMessages is returned by RenderChat when messages, tools or template
	// arguments have the wrong shape, or parts that the template cannot take.
	ErrMessages = errors.New("invalid conversation")
)
