// Package mooncake reads traces of requests in the format of Mooncake: one JSON object a
// line, with timestamp (milliseconds), input_length and output_length (tokens), and
// hash_ids (one id for each block of 512 tokens of the prompt; prompts that begin with the
// same ids begin with the same text).
package mooncake
