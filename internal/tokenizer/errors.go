package tokenizer

import "errors"

var (
	// ErrMalformed is returned when the file is not UTF-8, not JSON, or a field
	// has the wrong shape or value.
	ErrMalformed = errors.New("malformed tokenizer file")
	// ErrUnknownComponent is returned when the file names a component type, or
	// an option of one, that this package does not implement.
	ErrUnknownComponent = errors.New("unknown tokenizer component")
	// ErrVocabulary is returned when tokens, ids and merges contradict each
	// other.
	ErrVocabulary = errors.New("inconsistent vocabulary")
	// ErrPattern is returned when a regular expression does not compile.
	ErrPattern = errors.New("bad pattern")
	// ErrTooLarge is returned when the file exceeds a limit of this package.
	ErrTooLarge = errors.New("tokenizer file too large")
	// ErrPatternTimeout is returned by EncodeChecked when a regular expression
	// of the file ran past its time limit on the given text.
	ErrPatternTimeout = errors.New("pattern timed out")
	// ErrUnknownText is returned by EncodeChecked when the text has characters
	// outside the vocabulary and the model names no unknown token.
	ErrUnknownText = errors.New("text outside the vocabulary")
)
