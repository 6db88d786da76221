package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// TLS returns the TLS settings for connections to etcd, or nil when neither a
// certificate nor an https endpoint asks for TLS. readFile reads the files,
// usually os.ReadFile.
func (e EtcdClient) TLS(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	https := false
	for _, ep := range e.Endpoints {
		https = https || strings.HasPrefix(ep, "https://")
	}
	if e.CAFile == "" && e.CertFile == "" && !https {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CAFile != "" {
		pem, err := pemText(e.CAFile, readFile)
		if err != nil {
			return nil, fmt.Errorf("etcd.ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("etcd.ca_file: no certificate in it")
		}
	}
	if e.CertFile != "" {
		cert, err := pemText(e.CertFile, readFile)
		if err != nil {
			return nil, fmt.Errorf("etcd.cert_file: %w", err)
		}
		key, err := pemText(e.KeyFile, readFile)
		if err != nil {
			return nil, fmt.Errorf("etcd.key_file: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("etcd.cert_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// pemText accepts a path or the PEM text itself, as Dynamo's variables hold it.
func pemText(fileOrText string, readFile func(string) ([]byte, error)) ([]byte, error) {
	if strings.HasPrefix(strings.TrimSpace(fileOrText), "-----BEGIN") {
		return []byte(fileOrText), nil
	}
	return readFile(fileOrText)
}
