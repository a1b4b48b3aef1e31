package pgserver

import (
	"cmp"
	"errors"
	"net"
	"net/url"
)

// errURL has no cause: what net/url says repeats the URL, and that may hold a password.
var errURL = errors.New("the server's address is not a URL like postgres://user@host:port/database")

// localURL is the address of a server of our own.
func localURL(address, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Host: address, Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

func parseURL(serverURL string) (*url.URL, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" {
		return nil, errURL
	}
	return u, nil
}

// Address returns the host and the port of a server's URL, as a [Proxy] needs them.
func Address(serverURL string) (string, error) {
	u, err := parseURL(serverURL)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(u.Hostname(), portOf(u)), nil
}

func portOf(u *url.URL) string { return cmp.Or(u.Port(), "5432") }

func roleOf(u *url.URL) string { return cmp.Or(u.User.Username(), superuser) }

// withDatabase returns the URL with another database.
func withDatabase(serverURL, database string) (string, error) {
	u, err := parseURL(serverURL)
	if err != nil {
		return "", err
	}
	u.Path, u.RawPath = "/"+database, ""
	return u.String(), nil
}

// through returns the URL with another host and port.
func through(serverURL, address string) (string, error) {
	u, err := parseURL(serverURL)
	if err != nil {
		return "", err
	}
	u.Host = address
	return u.String(), nil
}
