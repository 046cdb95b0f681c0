from twisted.application.service import ServiceMaker

msgregistry = ServiceMaker(
    "msgregistry",
    "msgnode.devregistry.tap",
    "A domain registry and a global registry, for development and small domains.",
    "msgregistry",
)
