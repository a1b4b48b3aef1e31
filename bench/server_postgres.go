package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/relaybus-go/relaybus/internal/pgserver"
)

// server is a PostgreSQL server with a database for each contender.
type server struct {
	cluster *pgserver.Cluster
	// admin makes and drops databases.
	admin *pgx.Conn
	// process is nil when it is elsewhere.
	process *serverProcess
}

// openServer starts a server as initdb makes it, with fsync on and 200
// connections, or takes the one that the environment names.
func openServer(ctx context.Context, _ options) (site, error) {
	s := &server{cluster: new(pgserver.Cluster)}
	url, err := s.cluster.AdminURL(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.cluster.Close())
	}
	if s.admin, err = pgx.Connect(ctx, url); err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), s.cluster.Close())
	}
	if s.process, err = findServerProcess(ctx, s.admin); err != nil {
		s.process = nil // Then there is one figure less.
	}
	return s, nil
}

// about also makes sure that commits are durable.
func (s *server) about(ctx context.Context) (map[string]string, error) {
	about := make(map[string]string)
	for _, name := range []string{
		"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size",
		"max_connections", "autovacuum", "wal_level", "jit",
	} {
		var value string
		if err := s.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return nil, fmt.Errorf("read setting %s: %w", name, err)
		}
		about["PostgreSQL "+name] = value
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if value := about["PostgreSQL "+name]; value != "on" {
			return nil, fmt.Errorf("the server's setting %s is %s: its figures would be of commits that are not durable", name, value)
		}
	}
	return about, nil
}

func (s *server) create(ctx context.Context, _ string) (string, error) {
	return s.make(ctx, "template0 ENCODING 'UTF8' LOCALE 'C'")
}

// make makes a database, and writes what is dirty to the disk, so that whoever is
// measured next does not pay for those before.
func (s *server) make(ctx context.Context, template string) (string, error) {
	name := pgserver.NewDatabaseName()
	if _, err := s.admin.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		return "", err
	}
	url, err := s.cluster.URL(ctx, name)
	if err != nil {
		return "", err
	}
	return url, checkpoint(ctx, s.admin)
}

// checkpoint does nothing for a role that may not.
func checkpoint(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "CHECKPOINT")
	const insufficientPrivilege = "42501"
	if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == insufficientPrivilege {
		return nil
	}
	return err
}

// rest does what autovacuum would in time.
func (*server) rest(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return errors.Join(err, checkpoint(ctx, conn), conn.Close(ctx))
}

func (s *server) clone(ctx context.Context, address string) (string, error) {
	name, err := databaseOf(address)
	if err != nil {
		return "", err
	}
	return s.make(ctx, name)
}

func (s *server) remove(ctx context.Context, address string) error {
	name, err := databaseOf(address)
	if err != nil {
		return err
	}
	_, err = s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	return err
}

func databaseOf(address string) (string, error) {
	c, err := pgx.ParseConfig(address)
	if err != nil {
		return "", err
	}
	return pgx.Identifier{c.Database}.Sanitize(), nil
}

func (s *server) processorTime() func() time.Duration {
	if s.process == nil {
		return nil
	}
	return s.process.processorTime
}

func (s *server) close(ctx context.Context) error {
	return errors.Join(s.admin.Close(ctx), s.cluster.Close())
}
