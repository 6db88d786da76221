package declare

import "testing"

func TestOnHub(t *testing.T) {
	for path, want := range map[string]string{
		"/home/me/Qwen/Qwen3-0.6B":                          "Qwen/Qwen3-0.6B",
		"Qwen/Qwen3-0.6B":                                   "Qwen/Qwen3-0.6B",
		"/home/me/hf:/Qwen/Qwen3-0.6B":                      "Qwen/Qwen3-0.6B",
		"/home/me/https:/huggingface.co/Qwen/Q-1/tree/main": "Qwen/Q-1",
		"https://huggingface.co/meta-llama/Llama-3.2-1B":    "meta-llama/Llama-3.2-1B",
		"/home/me/qwen3-0.6b":                               "",
		"/home/me/models/qwen/q8.gguf":                      "",
		"/home/me/models/q8.GGUF":                           "",
		"/home/you/models/qwen3":                            "",
		"/srv/Qwen/Qwen3-0.6B":                              "",
		"/home/me/a/b/c":                                    "",
		"/home/me/.cache/model":                             "",
	} {
		if got := OnHub(path, "/home/me"); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
