// The README's example for Node.js: publish with an ordering key, receive, acknowledge.
// It needs a topic and a subscription, as clients/init.yaml has them.
import { PubSub } from "@google-cloud/pubsub";

const pubsub = new PubSub({ projectId: "demo" }); // finds PUBSUB_EMULATOR_HOST
const subscription = pubsub.subscription("orders.billing");
const received = new Promise((resolve, reject) => {
  subscription.on("message", (message) => {
    message.ack();
    resolve(message);
  });
  subscription.on("error", reject);
});

const topic = pubsub.topic("orders", { messageOrdering: true });
await topic.publishMessage({ data: Buffer.from("hello"), orderingKey: "order-1", attributes: { kind: "paid" } });
const message = await received;
console.log(`${message.data} ${message.orderingKey} ${message.attributes.kind}`);

await subscription.close();
await pubsub.close();
