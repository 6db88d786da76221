package credentials

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
)

func testToken() Token {
	return Token{Cluster: "lab", Namespace: "dynamo", Etcd: []string{"dynamod://10.0.0.5:2379"}, NATS: "dynamod://10.0.0.5:4222", Secret: New()}
}

func TestToken(t *testing.T) {
	want := testToken()
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !IsToken(text) || strings.ContainsAny(text, " \t\n'\"$`\\/+=") {
		t.Errorf("%q is no single word for every shell", text)
	}
	got, err := ParseToken("  " + text + "\n")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	// Any one letter that is changed, missing or too much is noticed.
	for i := range text {
		for _, bad := range []string{text[:i] + text[i+1:], text[:i] + "_" + text[i:], text[:i] + swap(text[i]) + text[i+1:]} {
			if bad == text {
				continue
			}
			if got, err := ParseToken(bad); err == nil {
				t.Errorf("changed at %d: read as %+v", i, got)
			} else if strings.Contains(err.Error(), bad[len(bad)-20:]) {
				t.Errorf("the error repeats the token: %v", err)
			}
		}
	}
}

func swap(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

func sealed(body string) string {
	return tokenVersion + base64.RawURLEncoding.EncodeToString(append([]byte(body), sumOf([]byte(body))...))
}

func TestTokensThatAreNone(t *testing.T) {
	secret := New().Encode()
	for text, want := range map[string]string{
		"":            "does not begin with dynctl1:",
		"dynctl2:abc": "its version is not",
		"dynctl1:":    "missing",
		"dynctl1:%%%": "missing",
		tokenVersion + strings.Repeat("A", maxToken):                         "longer",
		sealed(`not json`):                                                   "not readable",
		sealed(`{"e":["x:1"],"n":"a"}`):                                      "not a cluster secret",
		sealed(`{"n":"a","s":"` + secret + `"}`):                             "0 addresses",
		sealed(`{"e":["x:1"],"n":"A/b","s":"` + secret + `"}`):               "namespace",
		sealed(`{"e":["x:1\u0007"],"n":"a","s":"` + secret + `"}`):           "invalid name or address",
		sealed(`{"c":"\u001b[2J","e":["x:1"],"n":"a","s":"` + secret + `"}`): "invalid name or address",
	} {
		if got, err := ParseToken(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %+v %v, want %q", text, got, err, want)
		}
	}
	for _, change := range []func(*Token){
		func(t *Token) { t.Secret = Secret{} }, func(t *Token) { t.Etcd = nil }, func(t *Token) { t.Namespace = "" },
		func(t *Token) { t.Etcd = make([]string, maxTokenHosts+1) }, func(t *Token) { t.NATS = strings.Repeat("x", maxTokenText+1) },
	} {
		tok := testToken()
		change(&tok)
		if text, err := tok.Encode(); err == nil {
			t.Errorf("%+v became %.40s", tok, text)
		}
	}
	for text, want := range map[string]bool{"dynctl1:x": true, " dynctl12:": true, "dynctl:": false, "./dynctl1": false, "-": false, "": false} {
		if IsToken(text) != want {
			t.Errorf("IsToken(%q) is %v", text, !want)
		}
	}
}

func FuzzToken(f *testing.F) {
	text, err := testToken().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(sealed(`{"e":["x:1"],"n":"a","s":"x"}`))
	f.Add("dynctl1:")
	f.Fuzz(func(t *testing.T, text string) {
		// The body too, which the sum keeps the fuzzer from reaching.
		for _, s := range []string{text, sealed(text)} {
			tok, err := ParseToken(s)
			if err != nil {
				continue
			}
			again, err := tok.Encode()
			if err != nil {
				t.Fatalf("%q is read as %+v, which is no token: %v", s, tok, err)
			}
			if back, err := ParseToken(again); err != nil || !reflect.DeepEqual(back, tok) {
				t.Fatalf("%+v became %+v, %v", tok, back, err)
			}
		}
	})
}
