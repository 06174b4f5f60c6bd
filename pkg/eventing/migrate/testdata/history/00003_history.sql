-- +goose Up
CREATE TABLE refused ();
