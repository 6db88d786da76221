package certs

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dynctl/dynctl/internal/certs"
	"github.com/dynctl/dynctl/internal/cli/human"
)

// targetDir is where certificates are on nodes, unless they are used where they were made.
const targetDir = "/etc/dynctl/certs"

// place is where a certificate belongs.
type place struct {
	cert   certs.Certificate
	made   string // directory in which it is
	target string // directory from which it is used
}

func placeOf(dir string, c certs.Certificate, here bool) place {
	p := place{cert: c, made: dir, target: targetDir}
	if here {
		p.target = dir
	}
	return p
}

func (p place) file(name string) string { return filepath.Join(p.target, name) }

// client are the settings of TLS of a client, with the names of a prefix.
func (p place) client(prefix string) string {
	name := clientName
	if p.cert.Kind == certs.KindClient {
		name = p.cert.Name
	}
	return fmt.Sprintf("  %[1]sca_file: %[2]s\n  %[1]scert_file: %[3]s\n  %[1]skey_file: %[4]s\n", prefix, p.file("ca.pem"), p.file(name+".pem"), p.file(name+"-key.pem"))
}

// server are the settings of TLS of a server.
func (p place) server() string {
	return fmt.Sprintf("  tls_cert_file: %s\n  tls_key_file: %s\n", p.file(p.cert.Name+".pem"), p.file(p.cert.Name+"-key.pem"))
}

// settings are what to write, by file or program.
func (p place) settings() map[string]string {
	stores := "etcd:\n  endpoints: [https://HOST:2379]\n" + p.client("") + "nats:\n  url: tls://HOST:4222\n" + p.client("")
	dynctl := stores + "frontend:\n" + p.client("")
	if p.cert.Kind != certs.KindServer {
		return map[string]string{"dynctl.yaml": dynctl}
	}
	pair := []string{p.file(p.cert.Name + ".pem"), p.file(p.cert.Name + "-key.pem"), p.file("ca.pem")}
	return map[string]string{
		"dynctl.yaml": dynctl,
		"dynamod.yaml": stores + "frontend:\n" + p.server() + "status:\n" + p.server() +
			fmt.Sprintf("nixl:\n  tls_ca_file: %s\n", pair[2]) + p.server(),
		"etcd": fmt.Sprintf("etcd --cert-file=%s --key-file=%s --trusted-ca-file=%s --client-cert-auth --listen-client-urls=https://0.0.0.0:2379 --advertise-client-urls=https://%s:2379\n",
			human.ShellQuote(pair[0]), human.ShellQuote(pair[1]), human.ShellQuote(pair[2]), p.cert.Name),
		"nats-server": fmt.Sprintf("nats-server --jetstream --tls --tlscert=%s --tlskey=%s --tlscacert=%s --tlsverify\n",
			human.ShellQuote(pair[0]), human.ShellQuote(pair[1]), human.ShellQuote(pair[2])),
	}
}

// write says in words where it belongs.
func (p place) write(out *strings.Builder) {
	if p.cert.Kind == certs.KindAuthority {
		fmt.Fprintf(out, "\nca.pem belongs on every machine, ca-key.pem stays here: whoever has it can make certificates.\n")
		return
	}
	if p.target != p.made {
		files := []string{"ca.pem", clientName + ".pem", clientName + "-key.pem"}
		if p.cert.Name != clientName {
			files = append(files, p.cert.Name+".pem", p.cert.Name+"-key.pem")
		}
		if p.cert.Kind == certs.KindClient && p.cert.Name != clientName {
			files = append(files[:1], files[3:]...)
		}
		to := "HOST"
		if p.cert.Kind == certs.KindServer {
			to = p.cert.Name
		}
		fmt.Fprintf(out, "\nCopy these files, readable for the user of the programs only; ca-key.pem stays here:\n  cd %s\n  scp -p %s %s:%s/\n",
			human.ShellQuote(p.made), strings.Join(files, " "), to, targetDir)
	}
	set := p.settings()
	for _, s := range []struct{ title, key string }{
		{"dynamod.yaml, of what the node shall use TLS for", "dynamod.yaml"}, {"dynctl.yaml", "dynctl.yaml"}, {"etcd of your own", "etcd"}, {"NATS of your own", "nats-server"},
	} {
		if text := set[s.key]; text != "" {
			fmt.Fprintf(out, "\n%s:\n", s.title)
			for line := range strings.Lines(text) {
				out.WriteString("  " + line)
			}
		}
	}
}
