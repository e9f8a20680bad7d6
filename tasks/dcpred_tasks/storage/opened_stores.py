"""Opens obstore stores of buckets once per process, with credentials from its environment or role only."""

import os
import re
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from dcpred_tasks.errors import ResourceError, SettingsError
from dcpred_tasks.storage.addresses import FLAGS, Options
from dcpred_tasks.storage.store_requests import obstore

RETRIES, RETRY_SECONDS, REQUEST_SECONDS = 4, 60.0, 30.0
ENDPOINT = re.compile(r"^(AWS|AZURE|GOOGLE)\w*(ENDPOINT|_URL)")
# Environment variables that obstore reads only without options of connections.
ALLOW_HTTP = {
    "s3": "AWS_ALLOW_HTTP",
    "gs": "GOOGLE_ALLOW_HTTP",
    "az": "AZURE_ALLOW_HTTP",
}


@lru_cache(maxsize=64)
def open_store(scheme: str, bucket: str, options: Options) -> Any:
    """The obstore store of a bucket, once per process. Raises ResourceError, SettingsError."""
    given = dict(options)
    check_endpoints()
    package = import_module("obstore.store") if obstore() else None
    settings: dict[str, Any] = {
        name: value == "true" for name, value in given.items() if name in FLAGS and name != "allow_http"
    }
    client: dict[str, Any] = {"timeout": timedelta(seconds=float(given.get("timeout", REQUEST_SECONDS)))}
    asked = given.get("allow_http", os.environ.get(ALLOW_HTTP.get(scheme, ""), "")).lower()
    if asked == "true" or scheme == "http":
        client["allow_http"] = True
    if "root_certificate" in given:
        client["root_certificate"] = Path(given["root_certificate"]).read_text(encoding="utf-8")
    common = {
        "client_options": client,
        "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    try:
        return _made(package, scheme, bucket, given, settings | common)
    except (obstore().exceptions.BaseError, ValueError) as error:
        raise ResourceError(
            f"Cannot open {scheme}://{bucket}: its settings are incomplete or invalid"
            f" ({str(error).partition(chr(10))[0]}{_of_file(given)}). Check the environment and the storage"
            " options."
        ) from None


def _of_file(given: dict[str, str]) -> str:
    return f", root_certificate={given['root_certificate']}" if "root_certificate" in given else ""


def check_endpoints() -> None:
    """Raise SettingsError where an environment variable names an endpoint with a possible secret, which
    messages and records of failures would repeat.
    """
    for name, value in os.environ.items():
        host = value.partition("://")[2].partition("/")[0]
        if ENDPOINT.search(name) and "://" in value and ("@" in host or "?" in value):
            raise SettingsError(
                f"Cannot use the endpoint of the variable {name}: it holds a user, a password or a query,"
                " which messages repeat. Remove them, and put credentials into their own variables."
            )


def _made(package: Any, scheme: str, bucket: str, given: dict[str, str], settings: dict[str, Any]) -> Any:
    """A store of one of the vendors."""
    if scheme in ("http", "https"):
        client = settings["client_options"]
        return package.HTTPStore.from_url(
            f"{scheme}://{bucket}", client_options=client, retry_config=settings["retry_config"]
        )
    endpoint = given.get("endpoint")
    if scheme == "s3":
        named = {"endpoint": endpoint, "region": given.get("region")}
        credentials = _profile_credentials()
        if credentials is not None and not settings.get("skip_signature"):
            settings["credential_provider"] = credentials
        return package.S3Store(bucket, **{k: v for k, v in named.items() if v}, **settings)
    if scheme == "gs":
        named = {"base_url": endpoint}
        return package.GCSStore(bucket, **{k: v for k, v in named.items() if v}, **settings)
    named = {"endpoint": endpoint, "account_name": given.get("account_name")}
    return package.AzureStore(bucket, **{k: v for k, v in named.items() if v}, **settings)


def _profile_credentials() -> Any:
    """Credentials of a profile of the AWS tools, which obstore does not read; needs boto3."""
    if "AWS_ACCESS_KEY_ID" in os.environ or "AWS_PROFILE" not in os.environ:
        return None
    with suppress(ImportError):
        return import_module("obstore.auth.boto3").Boto3CredentialProvider()
    return None
