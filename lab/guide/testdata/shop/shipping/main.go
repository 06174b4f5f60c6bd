// Command shipping keeps the parcels, and prints a label for each change of one.
package main

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// drainTime bounds the requests that are under way when the process ends.
const drainTime = 5 * time.Second

//go:embed migrations/*.sql
var files embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.ErrorContext(ctx, "shipping ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0:
		return serve(ctx)
	case args[0] == "migrate":
		return up(ctx, os.Getenv("ADMIN_DATABASE_URL"))
	}
	return errors.New("usage: shipping [migrate]")
}

// up applies the migrations of the schema public.
func up(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	folder, err := fs.Sub(files, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, folder)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// serve serves until ctx ends.
func serve(ctx context.Context) error {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	return listen(ctx, routes(db))
}

// routes has the request with which a clerk notes that a parcel is packed.
func routes(db *pgxpool.Pool) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /parcels/{order}/packed", func(w http.ResponseWriter, r *http.Request) {
		tag, err := db.Exec(r.Context(), `UPDATE parcels SET packed_at = now() WHERE order_id::text = $1`, r.PathValue("order"))
		switch {
		case err != nil:
			http.Error(w, "the parcel was not written", http.StatusInternalServerError)
		case tag.RowsAffected() == 0:
			http.NotFound(w, r)
		}
	})
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /metrics", promhttp.Handler())
	return mux
}

// listen answers requests until ctx ends, and then ends those that are under way.
func listen(ctx context.Context, handler http.Handler) error {
	server := &http.Server{Addr: os.Getenv("ADDR"), Handler: handler, ReadHeaderTimeout: drainTime}
	drained := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		drained <- server.Shutdown(limited)
	})()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}
