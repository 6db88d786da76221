package model

import "errors"

var (
	// ErrConfig is returned when config.json or generation_config.json is
	// missing, malformed or contradicts itself. The text names file and field.
	ErrConfig = errors.New("invalid model configuration")
	// ErrUnsupported is returned when a checkpoint is well formed but uses a feature that
	// this package does not support: an architecture, a rope type, a quantization.
	ErrUnsupported = errors.New("unsupported model")
	// ErrWeights is returned when tensors are missing or do not fit config.json.
	ErrWeights = errors.New("weights do not fit the configuration")
	// ErrOutside is returned when a file of a model folder is a link that leads
	// out of it.
	ErrOutside = errors.New("link leads out of the model folder")
)
