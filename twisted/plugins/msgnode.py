from twisted.application.service import ServiceMaker

msgnode = ServiceMaker(
    "msgnode",
    "msgnode.service.tap",
    "A domain messaging node: WebSocket, TCP lines and long-polling, one router.",
    "msgnode",
)
